#!/bin/bash
. "$(dirname "$0")/../../scenarios/lib.sh"
want /health '{"ok":true}'
want / '<h1>hello</h1>'
[ -z "$(git -C "$APP" status --porcelain)" ] || fail "files were changed; a restart is all it takes"
if [ -n "${FAKELLM_LOG:-}" ] && [ -s "$FAKELLM_LOG" ]; then fail "the model was asked; a restart is all it takes"; fi
exit 0
