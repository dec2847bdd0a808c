// Evaluates CEL expressions as the API server does for a ValidatingAdmissionPolicy: objects are untyped, and macros,
// optional values and the strings library are there. Standard input: {"variables": {NAME: VALUE}, "expressions": [TEXT]}. Standard output:
// one result for each expression, or the error as text under "error".
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	"google.golang.org/protobuf/types/known/structpb"
)

type question struct {
	Variables   map[string]any `json:"variables"`
	Expressions []string       `json:"expressions"`
}

func main() {
	var asked question
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	options := []cel.EnvOption{cel.OptionalTypes(), ext.Strings(ext.StringsVersion(2))}
	for name := range asked.Variables {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	answers := []any{}
	for _, expression := range asked.Expressions {
		answers = append(answers, evaluate(env, expression, asked.Variables))
	}
	json.NewEncoder(os.Stdout).Encode(answers)
}

func evaluate(env *cel.Env, expression string, variables map[string]any) any {
	ast, issues := env.Compile(expression)
	if issues != nil && issues.Err() != nil {
		return map[string]string{"error": issues.Err().Error()}
	}
	program, err := env.Program(ast)
	if err != nil {
		return map[string]string{"error": err.Error()}
	}
	value, _, err := program.Eval(variables)
	if err != nil {
		return map[string]string{"error": err.Error()}
	}
	plain, err := value.ConvertToNative(reflect.TypeOf(&structpb.Value{}))
	if err != nil {
		return map[string]string{"error": err.Error()}
	}
	return plain.(*structpb.Value).AsInterface()
}
