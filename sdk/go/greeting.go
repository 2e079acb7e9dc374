package tend

import (
	"context"
	"io"
	"net"
	"sync"
)

// firstWord is a connection of HTTP/1.1 on which the client speaks first: nothing is read
// before the request is on its way. Servers that greet (SSH, mail) would else be answers to no
// request, which net/http prints and does not return, if they greet before it has begun.
type firstWord struct {
	net.Conn
	said  chan struct{} // closed by the first write, or by Close
	speak func()
}

// afterRequest makes connections of which nothing is read before something is written.
func afterRequest(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		said := make(chan struct{})
		return &firstWord{conn, said, sync.OnceFunc(func() { close(said) })}, nil
	}
}

func (c *firstWord) Read(b []byte) (int, error) {
	<-c.said
	return c.Conn.Read(b)
}

func (c *firstWord) Write(b []byte) (int, error) {
	c.speak()
	return c.Conn.Write(b)
}

// ReadFrom implements io.ReaderFrom, for which connections have short ways.
func (c *firstWord) ReadFrom(r io.Reader) (int64, error) {
	c.speak()
	return io.Copy(c.Conn, r)
}

func (c *firstWord) Close() error {
	c.speak()
	return c.Conn.Close()
}
