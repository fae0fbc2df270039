"""A model folder comes in; a folder for another library, with the same outputs there, goes out.

`export` opens a `Source`, and the function of a target (`targets`) writes it and compares.
"""
