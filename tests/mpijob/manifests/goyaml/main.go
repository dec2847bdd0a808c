// Reads YAML as kubectl and the API server do, and prints it as JSON.
package main

import (
	"io"
	"os"

	"sigs.k8s.io/yaml"
)

func main() {
	in, _ := io.ReadAll(os.Stdin)
	out, err := yaml.YAMLToJSON(in)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(out)
}
