package ports

import (
	"net/http"
	"strings"
	"testing"
)

func TestThePageShowsTextAsText(t *testing.T) {
	e := &refusal{SandboxID: "<script>id</script>", Message: `"><b>&`, Port: 3000, Code: http.StatusBadGateway}
	text := e.page()
	if strings.Contains(text, "<script>") || strings.Contains(text, "<b>") || !strings.Contains(text, "&lt;b&gt;&amp;</h1>") {
		t.Errorf("a name is more than text in %s", text)
	}
	for _, want := range []string{"<code>&lt;script&gt;id&lt;/script&gt;</code>, port <code>3000</code>", "load the page again"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s does not show %q", text, want)
		}
	}
	e.Port, e.Code = 0, http.StatusForbidden
	if text := e.page(); strings.Contains(text, "port <code>") || !strings.Contains(text, "<code>tend ui</code>") {
		t.Errorf("it is %s", text)
	}
}
