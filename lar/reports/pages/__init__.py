"""The files that every HTML page contains: its frame, style sheet and scripts.

A page needs nothing else: its words are HTML, its scripts draw tables and plots from JSON in the
page. `page.js` has what all scripts use, `names.js` shortens names, `tables.js` draws tables that
can be sorted and filtered, `plots.js` and `report.js` draw the plots. Pictures and tables fit the
width of the page, and are drawn again when it changes.
"""
