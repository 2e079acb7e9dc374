package network

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/textproto"
	"strings"
	"time"
)

// maxSniffed bounds what is read of a connection before its name is known, in bytes.
const maxSniffed = 32 << 10

// errName: what a connection says of where it goes cannot be believed.
var errName = errors.New("the host of the request is missing, or said in several ways")

// sniff reads the beginning of what a program sends, until it knows which host that is
// meant for: the server name of TLS, or the host of an HTTP request. "": it says none.
// read is all that was read. Errors are those of reading, and errName.
func sniff(from io.Reader) (name string, read []byte, err error) {
	t := &tee{from: from}
	first, err := t.peek(1)
	if err != nil {
		return "", t.read.Bytes(), err
	}
	switch {
	case first[0] == 0x16:
		name, err = helloName(t)
	case first[0] >= 'A' && first[0] <= 'Z':
		name, err = requestName(t)
	}
	if err == nil && name != "" {
		if name, err = hostOf(name); err != nil {
			err = errName
		}
	}
	return name, t.read.Bytes(), err
}

// hostOf is the host of "host:port" in the form of hostName; an address is as
// good as no name.
func hostOf(s string) (string, error) {
	if h, _, err := net.SplitHostPort(s); err == nil {
		s = h
	}
	s = strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")
	if _, ok := parsePrefix(s); ok {
		return "", nil
	}
	return hostName(s)
}

// tee keeps what is read through it. What was read is read again by the next reader.
type tee struct {
	from io.Reader
	read bytes.Buffer
	at   int // of read
}

func (t *tee) Read(b []byte) (int, error) {
	if t.at == t.read.Len() {
		if err := t.more(len(b)); err != nil {
			return 0, err
		}
	}
	n := copy(b, t.read.Bytes()[t.at:])
	t.at += n
	return n, nil
}

func (t *tee) more(want int) error {
	room := maxSniffed - t.read.Len()
	if room <= 0 {
		return errName
	}
	var chunk [2048]byte
	n, err := t.from.Read(chunk[:min(max(want, 1), room, len(chunk))])
	t.read.Write(chunk[:n])
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// peek returns the first n bytes, which are read again.
func (t *tee) peek(n int) ([]byte, error) {
	for t.read.Len() < n {
		if err := t.more(n); err != nil {
			return nil, err
		}
	}
	return t.read.Bytes()[:n], nil
}

// helloName has crypto/tls read a ClientHello.
func helloName(t *tee) (name string, err error) {
	seen := errors.New("seen")
	err = tls.Server(readOnly{t}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name = h.ServerName
		return nil, seen
	}}).Handshake()
	switch {
	case errors.Is(err, seen):
		return name, nil
	case t.read.Len() >= maxSniffed:
		return "", errName
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

// maxMethod bounds the method of a request, in bytes.
const maxMethod = 20

// requestName returns the host of an HTTP/1 request; "" for what is none.
func requestName(t *tee) (string, error) {
	for n := 1; ; n++ { // a byte at a time: what is no request says no more, maybe
		b, err := t.peek(n)
		if err != nil {
			return "", err
		}
		if b[n-1] == ' ' {
			break
		}
		if c := b[n-1]; n > maxMethod || !(c >= 'A' && c <= 'Z' || c == '-') {
			return "", nil
		}
	}
	r := textproto.NewReader(bufio.NewReaderSize(t, 512))
	line, err := r.ReadLine()
	if err != nil {
		return "", err
	}
	method, rest, _ := strings.Cut(line, " ")
	target, version, ok := strings.Cut(rest, " ")
	if !ok || !strings.HasPrefix(version, "HTTP/") {
		return "", nil
	}
	if version == "HTTP/2.0" {
		return "", nil // its hosts are compressed, and many
	}
	h, err := r.ReadMIMEHeader()
	if err != nil {
		if isOver(err) {
			return "", err
		}
		return "", errName
	}
	for k := range h { // "Host :" is a host to some servers
		if strings.ContainsAny(k, " \t") {
			return "", errName
		}
	}
	hosts := h["Host"]
	if len(hosts) > 1 || len(hosts) == 0 && version != "HTTP/1.0" {
		return "", errName
	}
	host := ""
	if len(hosts) == 1 {
		host = hosts[0]
	}
	// A proxy is told the host in the target.
	if method == "CONNECT" {
		return target, nil
	}
	if _, after, ok := strings.Cut(target, "://"); ok {
		authority, _, _ := strings.Cut(after, "/")
		if i := strings.LastIndexByte(authority, '@'); i >= 0 {
			authority = authority[i+1:]
		}
		return authority, nil
	}
	return host, nil
}
