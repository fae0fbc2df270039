"""Preparation on other machines: work handed out in files, and datatrove to have it done."""
