"""How manifests are written out: YAML, kustomize, Helm."""
