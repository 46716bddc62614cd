"""Settings of Sphinx for the site: ``python3 dev.py docs`` builds and serves it."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# For the extensions in docs.pages, wherever Sphinx is started.
sys.path.insert(0, str(ROOT))

import flow  # noqa: E402  # found by the line above

project = "flow-windows"
version = release = flow.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "docs.pages.code_blocks",
    "docs.pages.outside",
    "docs.pages.public_names",
]
root_doc = "index"
exclude_patterns = ["_build", "**/__pycache__"]

nitpicky = True
nitpick_ignore_regex = [
    # Types of other packages, since the site is built without a network, and so without their
    # inventories; and single words in backticks, which may be names of arguments.
    (r"py:.*", r"(?!(flow|flow_windowing|recovery)\.).*"),
]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

# Names in single backticks, in docstrings, link to the reference where they are public.
default_role = "py:obj"
add_module_names = False
autodoc_default_options = {
    "members": True,
    "show-inheritance": True,
    "exclude-members": "WRONG_ARGUMENTS",
}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
python_maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "flow-windows"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["tables.js"]
# The button copies the code of an example, without prompts and output.
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5c8a", "color-brand-content": "#0b5c8a"},
    "dark_css_variables": {"color-brand-primary": "#6cb6e4", "color-brand-content": "#6cb6e4"},
}
