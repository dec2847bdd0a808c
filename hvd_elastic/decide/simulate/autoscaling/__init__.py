"""What autoscalers do on a simulated day: the nodes that a cluster autoscaler buys, and the reserve that it keeps."""
