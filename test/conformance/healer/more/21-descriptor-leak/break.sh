#!/bin/bash
set -eu
cd "$APP"
# the user made it shorter
python3 - <<'P'
p='lib/feed.js'; s=open(p).read()
a=s.index('  const fd'); b=s.index('}\n\nexports.start')
open(p,'w').write(s[:a]+"  const fd = fs.openSync(file, 'r');\n  n = fs.readFileSync(fd, 'utf8').split('\\n').filter(Boolean).length;\n"+s[b:])
P
git commit -qam 'shorter'
