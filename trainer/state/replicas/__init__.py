"""Whether all workers hold the same parameters, as data-parallel training needs: compared at commits by a hash."""
