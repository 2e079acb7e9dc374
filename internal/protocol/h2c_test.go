package protocol

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestH2COutlivesItsFirstHeader: what runs on a connection goes on when the time for its first header is over.
func TestH2COutlivesItsFirstHeader(t *testing.T) {
	const patience = 50 * time.Millisecond
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	s := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
			t.Errorf("the connection is ended: %v", r.Context().Err())
		case <-time.After(4 * patience):
		}
	})}
	H2C(s)
	go s.Serve(l)
	defer s.Close()
	var only http.Protocols
	only.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &only}
	defer tr.CloseIdleConnections()
	for range 2 {
		res, err := (&http.Client{Transport: tr}).Get("http://" + l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.ProtoMajor != 2 {
			t.Errorf("it speaks %s", res.Proto)
		}
	}
}
