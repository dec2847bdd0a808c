"""YAML that a stranger may have written: values with their source ranges, bounded before anything is built."""
