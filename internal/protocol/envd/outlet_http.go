package envd

import (
	"net/http"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
)

// httpOutlet sends frames through net/http: for HTTP/2, HTTP/1.0 and servers
// whose connections cannot be taken over.
type httpOutlet struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	held budget.Charge // for the frame that its reader takes
	paid bool          // the next frame is charged for
}

func newHTTPOutlet(w http.ResponseWriter, of *budget.Charge) *httpOutlet {
	o := &httpOutlet{w: w, rc: http.NewResponseController(w)}
	o.held.Like(of)
	return o
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

// smallPiece of output is a frame that is not charged for, in bytes; base64 of it has no
// padding.
const smallPiece = 3 << 10

// piece: net/http takes a frame of any size in, and holds it.
func (o *httpOutlet) piece(n int, _ func(int) int) (int, error) {
	if o.paid = o.held.Add(int64(frameSize)) == nil; o.paid {
		return n, nil
	}
	return min(n, smallPiece), nil
}

func (o *httpOutlet) frame(enc *frameEncoder) error {
	defer o.held.Release()
	buf, err := enc.encode()
	if err != nil {
		return err
	}
	if !o.paid {
		small := append([]byte(nil), buf.b[chunkRoom:]...)
		frames.Put(buf)
		_, err = o.w.Write(small)
		return err
	}
	defer frames.Put(buf)
	_, err = o.w.Write(buf.b[chunkRoom:])
	return err
}

var _ protocol.SpanSink = (*frameSink)(nil)
