"""The files that every HTML page holds: its frame, style sheet and scripts.

A page needs nothing else: its words are HTML, its tables and plots are drawn by its scripts from
figures that stand in it as JSON. `page.js` has what all scripts use, `names.js` shortens names,
`tables.js` draws tables that are sorted and filtered, `plots.js` and `report.js` the plots.
Pictures and tables are drawn for the width of the page, and again when that changes.
"""
