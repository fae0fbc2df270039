"""Programs killed again and again, and their ends compared with that of an undisturbed one."""
