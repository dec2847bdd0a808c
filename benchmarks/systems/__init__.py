"""What runs elastic jobs on the test cluster: the product, and what people use instead. Each has one of `System`."""
