"""What decides by numbers: a simulated cluster day, and the controller that shares idle GPUs."""
