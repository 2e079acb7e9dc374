#!/bin/bash
set -eu
cd "$APP"
# the project is a work tree of a repository that is elsewhere, on no branch
mv .git "$STATE/main.git"
git --git-dir="$STATE/main.git" config core.bare true
rm -rf "$STATE/w"; git --git-dir="$STATE/main.git" worktree add -q --detach --no-checkout "$STATE/w" base
cp "$STATE/w/.git" .git
printf '%s
' "$APP/.git" > "$STATE/main.git/worktrees/w/gitdir"
rm -rf "$STATE/w"
git reset -q
rm "größe/-rf it's.js"
