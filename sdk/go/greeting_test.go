package tend_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/sdk/go"
)

// What greets is no answer to a request, however soon it does.
func TestAServerThatGreetsIsNoTend(t *testing.T) {
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("SSH-2.0-OpenSSH_9.2\r\n"))
			c.Read(make([]byte, 1024))
			c.Close()
		}
	}()
	defer func() { l.Close(); <-served }()
	for range 20 {
		_, err := tend.Dial(t.Context(), "http://"+l.Addr().String(), tend.Options{HTTP1: true})
		if err == nil || !strings.Contains(err.Error(), "it is no tend server") {
			t.Fatalf("got %v", err)
		}
	}
}

func TestNothingIsReadBeforeTheRequest(t *testing.T) {
	for name, begin := range map[string]func(net.Conn){
		"a write": func(c net.Conn) { c.Write([]byte("GET")) },
		"the end": func(c net.Conn) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				here, there := net.Pipe()
				defer there.Close()
				c := proctest.Value(tend.AfterRequest(func(context.Context, string, string) (net.Conn, error) { return here, nil })(t.Context(), "", ""))(t)
				defer c.Close()
				greeted, read := make(chan error, 1), make(chan error, 1)
				go func() {
					_, err := there.Write([]byte("SSH"))
					greeted <- err
				}()
				go func() {
					_, err := c.Read(make([]byte, 3))
					read <- err
				}()
				synctest.Wait()
				if len(greeted)+len(read) > 0 {
					t.Fatal("the greeting was read before there was a request")
				}
				go func() { there.Read(make([]byte, 3)) }()
				begin(c)
				synctest.Wait()
				if len(greeted) != 1 || len(read) != 1 {
					t.Fatal("it is not read then")
				}
			})
		})
	}
}
