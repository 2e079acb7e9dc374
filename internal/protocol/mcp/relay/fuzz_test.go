package relay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

// FuzzRelay: whatever a client sends and a server answers, what goes to the client is
// messages, one a line.
func FuzzRelay(f *testing.F) {
	f.Add([]byte(ping), []byte("id: 1\ndata: {\"id\":\"p\"}\n\n"), true)
	f.Add([]byte("{\n[\n"+ping), []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}`), false)
	f.Fuzz(func(t *testing.T, in, answer []byte, events bool) {
		if bytes.Count(in, []byte("\n")) > 20 {
			return
		}
		got := pass(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if events {
				w.Header().Set("Content-Type", "text/event-stream")
			}
			if r.Header.Get("Tend-Again") != "" { // else it would be asked again and again
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `{}`)
				return
			}
			_, _ = w.Write(answer)
		}, bytes.NewReader(in))
		for _, line := range got {
			if line != "" && !json.Valid([]byte(line)) {
				t.Errorf("%q is no message", line)
			}
		}
	})
}
