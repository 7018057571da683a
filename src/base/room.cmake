# The style and the script of every page, as bytes.
at_embed(${lib} at_page_files ${dir}/page.css ${dir}/page.js)
