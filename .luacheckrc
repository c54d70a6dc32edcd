std = "luajit"
max_line_length = 140
files["tests"] = { std = "luajit+busted" }
