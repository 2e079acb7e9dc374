package network

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"time"
)

// maxSniffed bounds what is read of a connection before its name is known, in bytes.
const maxSniffed = 32 << 10

// errName: what a connection says of where it goes cannot be believed.
var errName = errors.New("the host of the request is missing, or said in several ways")

// opening is the beginning of what a program sends.
type opening struct {
	name    string        // of the host that it is meant for; "": it says none
	request *request      // the first; nil: it is no HTTP/1
	more    *bufio.Reader // all that was sent, but for the head of the request
}

// sniff reads the beginning of what a program sends, until it knows which host that is
// meant for: the server name of TLS, or the host of an HTTP request. Errors are those of
// reading, and errName. There is an opening then, too.
func sniff(from io.Reader) (*opening, error) {
	o := &opening{more: bufio.NewReaderSize(from, maxSniffed)}
	first, err := o.more.Peek(1)
	if err != nil {
		return o, err
	}
	if first[0] == 0x16 {
		if o.name, err = helloName(o.more); err == nil {
			o.name, err = hostOf(o.name)
		}
		return o, err
	}
	is, err := isRequest(o.more)
	if err != nil || !is {
		return o, err
	}
	if o.request, err = readRequest(o.more); err == nil {
		o.name = o.request.host
	}
	return o, err
}

// hostOf is the host of "host:port" in the form of hostName; an address is as
// good as no name. The error is errName.
func hostOf(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	if h, _, err := net.SplitHostPort(s); err == nil {
		s = h
	}
	s = strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")
	if _, ok := parsePrefix(s); ok {
		return "", nil
	}
	name, err := hostName(s)
	if err != nil {
		return "", errName
	}
	return name, nil
}

// peeker reads what is read again by others.
type peeker struct {
	from *bufio.Reader
	at   int
}

func (p *peeker) Read(b []byte) (int, error) {
	if _, err := p.from.Peek(p.at + 1); err != nil {
		return 0, err
	}
	all, _ := p.from.Peek(p.from.Buffered())
	n := copy(b, all[p.at:])
	p.at += n
	return n, nil
}

// helloName has crypto/tls read a ClientHello.
func helloName(from *bufio.Reader) (name string, err error) {
	seen := errors.New("seen")
	err = tls.Server(readOnly{&peeker{from: from}}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name = h.ServerName
		return nil, seen
	}}).Handshake()
	switch {
	case errors.Is(err, seen):
		return name, nil
	case isOver(err):
		return "", err
	}
	return "", errName // it begins like TLS and is none
}

func isOver(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || ok && ne.Timeout()
}

// readOnly is a connection of which nothing gets out.
type readOnly struct{ io.Reader }

func (readOnly) Write(b []byte) (int, error)      { return len(b), nil }
func (readOnly) Close() error                     { return nil }
func (readOnly) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (readOnly) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (readOnly) SetDeadline(time.Time) error      { return nil }
func (readOnly) SetReadDeadline(time.Time) error  { return nil }
func (readOnly) SetWriteDeadline(time.Time) error { return nil }
