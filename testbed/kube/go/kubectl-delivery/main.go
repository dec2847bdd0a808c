// kubectl-delivery does what the command of the training-operator's image of that name does: cp /bin/kubectl /opt/kube/kubectl
package main

import (
	"io"
	"log"
	"os"
)

func main() {
	from, err := os.Open("/bin/kubectl")
	if err != nil {
		log.Fatal(err)
	}
	to, err := os.OpenFile("/opt/kube/kubectl", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		log.Fatal(err)
	}
	if err := to.Close(); err != nil {
		log.Fatal(err)
	}
}
