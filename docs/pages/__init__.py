"""Parts of the site that Sphinx and its theme do not have."""
