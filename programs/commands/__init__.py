"""The commands of `waferloom`, one file each; a file is imported only when its command is used."""
