package envd

import (
	"net/http"

	"github.com/tend-run/tend/face"
)

// httpOutlet sends frames through net/http: for HTTP/2, HTTP/1.0 and servers
// whose connections cannot be taken over.
type httpOutlet struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

func newHTTPOutlet(w http.ResponseWriter) *httpOutlet {
	return &httpOutlet{w: w, rc: http.NewResponseController(w)}
}

func (o *httpOutlet) batch(buf []byte, more, _ bool) error {
	if _, err := o.w.Write(buf[chunkRoom:]); err != nil {
		return err
	}
	if more {
		return nil
	}
	return o.rc.Flush()
}

// piece: net/http takes a frame of any size in, and holds it.
func (o *httpOutlet) piece(n int, _ func(int) int) (int, error) { return n, nil }

func (o *httpOutlet) frame(enc *frameEncoder) error {
	buf, err := enc.encode()
	if err != nil {
		return err
	}
	defer frames.Put(buf)
	_, err = o.w.Write(buf.b[chunkRoom:])
	return err
}

var _ face.SpanSink = (*frameSink)(nil)
