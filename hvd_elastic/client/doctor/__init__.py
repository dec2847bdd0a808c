"""Whether a cluster has what elastic training needs: facts in, findings out."""
