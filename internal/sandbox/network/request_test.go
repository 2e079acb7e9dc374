package network

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// FuzzRequests: of all that is passed on another server reads the same requests, for the same hosts.
func FuzzRequests(f *testing.F) {
	const head = "POST /x HTTP/1.1\r\nHost: a.test\r\n"
	f.Add(head + "Content-Length: 3\r\n\r\nabc" + head + "\r\n")
	f.Add(head + "Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nT: x\r\n\r\n" + head + "\r\n")
	f.Add("GET http://u@b.test:80/?http://c.test HTTP/1.1\r\nHost: b.test\r\n\r\n\r\n" + head + "\r\n")
	f.Add("GET / HTTP/1.0\r\n\r\nGET / HTTP/1.1\r\nHost: [::1]:80\r\nUpgrade: x\r\n\r\n")
	f.Fuzz(func(t *testing.T, sent string) {
		r := bufio.NewReaderSize(strings.NewReader(sent), maxSniffed)
		var out bytes.Buffer
		var hosts []string
		whole := 0 // how much of out is whole requests
		for {
			q, err := nextRequest(r)
			if err != nil || !q.stay() || q.pass(&out, r) != nil {
				break
			}
			hosts, whole = append(hosts, q.host), out.Len()
		}
		there := bufio.NewReader(bytes.NewReader(out.Bytes()[:whole]))
		for i, host := range hosts {
			req, err := http.ReadRequest(there)
			if err != nil {
				return // it is stricter, and answers nothing
			}
			if got, err := hostOf(req.Host); err != nil || got != host {
				t.Fatalf("request %d is for %q, and %q to another server (%v)", i, host, got, err)
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return
			}
		}
		if b, _ := io.ReadAll(there); len(b) > 0 {
			t.Fatalf("another server reads %q behind them", b)
		}
	})
}
