# The script of the report's page, as bytes.
at_embed(${lib} at_estimate_page_files ${dir}/page.js)
