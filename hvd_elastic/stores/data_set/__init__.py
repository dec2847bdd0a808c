"""The objects of a data set: listed by the cloud's own library or from a list of URLs, read by obstore."""
