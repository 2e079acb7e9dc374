package network

import (
	"bufio"
	"bytes"
	"cmp"
	"io"
	"net/http/httputil"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

// request is the head of an HTTP/1 request. It is of the one form that no two servers read in two
// ways: what is checked here is what the server obeys.
type request struct {
	head   []byte // as it was sent
	host   string // that it is meant for; "": none
	body   int64  // bytes that follow; -1: chunks
	change string // with this status the server agrees that another protocol follows; "": none does
}

// maxMethod bounds the method of a request, in bytes.
const maxMethod = 20

var (
	requestLine = lazyregexp.New(`^([!#$%&'*+\-.^_\x60|~0-9A-Za-z]{1,20}) ([^\x00-\x20\x7f]+) HTTP/1\.([01])\r\n$`)
	headerLine  = lazyregexp.New(`^[!#$%&'*+\-.^_\x60|~0-9A-Za-z]+:[^\x00\r\n]*\r\n$`)
	upgradeLine = lazyregexp.New(`(?im)^Upgrade:.*\n`)
)

// isRequest reports whether some server may take what comes for a request of HTTP/1 or older:
// some pass over white space before and in the first line, and need no version. It waits for
// the end of the line only if that begins as methods do; see passFirstLine.
func isRequest(r *bufio.Reader) (bool, error) {
	n := 0
	next := func() (c byte, err error) { // a byte at a time: what is no request says no more, maybe
		n++
		b, err := r.Peek(n)
		if err != nil {
			if err == bufio.ErrBufferFull {
				err = errName
			}
			return 0, err
		}
		return b[n-1], nil
	}
	c, err := next()
	for err == nil && isSpace(c) {
		c, err = next()
	}
	method := 0
	for ; err == nil && c > ' ' && c < 0x7f && method <= maxMethod; c, err = next() {
		method++
	}
	if err != nil || method == 0 || method > maxMethod || !isSpace(c) || c == '\r' || c == '\n' {
		return false, err
	}
	for err == nil && c != '\n' {
		c, err = next()
	}
	if err != nil {
		return false, err
	}
	line, _ := r.Peek(n)
	var l firstLine
	l.add(line)
	return l.isRequest() && string(line) != prior, nil
}

// prior is the first line of HTTP/2 without TLS: its hosts are compressed, and many.
const prior = "PRI * HTTP/2.0\r\n"

// firstLine is what of a line says whether some server may take it for that of a request.
type firstLine struct {
	fields int
	in     bool   // a field has begun, and has not ended
	last   []byte // of the last field, at most mostTold bytes
}

const mostTold = 64

func (l *firstLine) add(line []byte) {
	for _, c := range line {
		switch was := l.in; {
		case isSpace(c):
			l.in = false
			continue
		case !was:
			l.in, l.fields, l.last = true, l.fields+1, l.last[:0]
		}
		if len(l.last) < mostTold {
			l.last = append(l.last, c)
		}
	}
}

func (l *firstLine) isRequest() bool {
	switch {
	case l.fields > 2 && len(l.last) > 5 && bytes.EqualFold(l.last[:5], []byte("HTTP/")):
		return true
	case l.fields == 2:
		return l.last[0] == '/' || bytes.Contains(l.last, []byte("://"))
	}
	return false
}

// passFirstLine passes on the first line, with empty ones before it, of what isRequest did not
// wait for: bytes that no text has, or a long word. Its end is held back, with errName, if some
// server may take it for a request after all.
func passFirstLine(to io.Writer, r *bufio.Reader) error {
	if b, _ := r.Peek(r.Buffered()); bytes.HasPrefix(b, []byte(prior)) {
		return nil
	}
	var l firstLine
	for {
		if _, err := r.Peek(1); err != nil {
			return err
		}
		b, _ := r.Peek(r.Buffered())
		text, _, ended := bytes.Cut(b, []byte("\n"))
		l.add(text)
		if ended {
			if l.isRequest() {
				return errName
			}
			text = b[:len(text)+1]
		}
		if _, err := to.Write(text); err != nil {
			return err
		}
		_, _ = r.Discard(len(text)) // they are there
		if ended && l.fields > 0 {
			return nil
		}
	}
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// readRequest reads the head of a request. The error is errName if it is not one, has not the strict
// form, or ends too early; else that of reading.
func readRequest(r *bufio.Reader) (*request, error) {
	q := &request{}
	line, err := q.line(r, requestLine)
	if err != nil {
		return nil, err
	}
	method, target, newer := string(line[1]), string(line[2]), line[3][0] == '1'
	begin := len(q.head)
	for {
		if b, err := r.Peek(2); err == nil && string(b) == "\r\n" {
			break
		}
		if _, err := q.line(r, headerLine); err != nil {
			return nil, err
		}
	}
	q.head = append(q.head, "\r\n"...)
	_, _ = r.Discard(2) // they are there
	h, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(q.head[begin:]))).ReadMIMEHeader()
	if err != nil {
		return nil, errName
	}
	if q.host, err = hostIn(method, target, h["Host"], newer); err != nil {
		return nil, err
	}
	length, coding := h["Content-Length"], h["Transfer-Encoding"]
	switch {
	case len(length)+len(coding) > 1:
		return nil, errName
	case len(coding) == 1:
		if q.body = -1; !newer || !strings.EqualFold(coding[0], "chunked") {
			return nil, errName
		}
	case len(length) == 1:
		n, err := strconv.ParseUint(length[0], 10, 63)
		if err != nil {
			return nil, errName
		}
		q.body = int64(n)
	}
	switch {
	case method == "CONNECT":
		q.change = "2"
	case h["Upgrade"] != nil:
		q.change = "101"
	}
	return q, nil
}

// nextRequest reads the request after another one, and the empty line that may follow a content.
func nextRequest(r *bufio.Reader) (*request, error) {
	if b, err := r.Peek(2); err == nil && string(b) == "\r\n" {
		_, _ = r.Discard(2)
	}
	return readRequest(r)
}

// line takes a line of the head.
func (q *request) line(r *bufio.Reader, form *lazyregexp.Regexp) ([][]byte, error) {
	b, err := r.ReadSlice('\n')
	switch {
	case err == io.EOF && len(q.head)+len(b) == 0:
		return nil, io.EOF
	case err == io.EOF || err == bufio.ErrBufferFull || err == nil && len(q.head)+len(b) > maxSniffed:
		return nil, errName
	case err != nil:
		return nil, err
	}
	begin := len(q.head)
	q.head = append(q.head, b...)
	m := form.FindSubmatch(q.head[begin:])
	if m == nil {
		return nil, errName
	}
	return m, nil
}

// stay has a request not ask for another protocol; false: it asks for nothing else.
func (q *request) stay() bool {
	if q.change == "2" {
		return false
	}
	if q.change != "" {
		q.change, q.head = "", []byte(upgradeLine.ReplaceAllString(string(q.head), ""))
	}
	return true
}

// hostIn is the host of a request: of its target, as a proxy is told it, and of its headers. Of
// two that are not the same one server takes this and another that.
func hostIn(method, target string, said []string, newer bool) (host string, err error) {
	if len(said) > 1 || len(said) == 0 && newer {
		return "", errName
	}
	if len(said) == 1 {
		if host, err = hostOf(said[0]); err != nil {
			return "", err
		}
	}
	if method == "CONNECT" {
		return hostOf(target)
	}
	_, after, ok := strings.Cut(target, "://")
	if !ok || target[0] == '/' { // a URL may stand in a query
		return host, nil
	}
	if i := strings.IndexAny(after, "/?#"); i >= 0 {
		after = after[:i]
	}
	inTarget, err := hostOf(after[strings.LastIndexByte(after, '@')+1:])
	if err != nil || len(said) == 1 && inTarget != host {
		return "", errName
	}
	return inTarget, nil
}

// pass sends a request on, its chunks as they were read.
func (q *request) pass(to io.Writer, r *bufio.Reader) error {
	if _, err := to.Write(q.head); err != nil {
		return err
	}
	if q.body >= 0 {
		_, err := io.CopyN(to, r, q.body)
		return err
	}
	w := httputil.NewChunkedWriter(to)
	if _, err := io.Copy(w, httputil.NewChunkedReader(r)); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return passTrailer(to, r)
}

// passTrailer sends on what follows the last chunk.
func passTrailer(to io.Writer, r *bufio.Reader) error {
	for left := maxSniffed; ; {
		line, err := r.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			return errName
		}
		if err != nil {
			return err
		}
		over := string(line) == "\r\n"
		if left -= len(line); left < 0 || !over && !headerLine.Match(line) {
			return errName
		}
		if _, err := to.Write(line); err != nil || over {
			return err
		}
	}
}

// passAnswer passes an answer on, up to the end of its head, and returns its status.
func passAnswer(to io.Writer, from *bufio.Reader) (status string, err error) {
	for {
		status = ""
		for n := 0; ; n++ {
			line, err := from.ReadSlice('\n')
			if _, werr := to.Write(line); werr != nil || err != nil {
				return "", cmp.Or(werr, err)
			}
			if f := bytes.Fields(line); n == 0 && len(f) > 1 {
				status = string(f[1])
			}
			if n > 0 && len(bytes.TrimRight(line, "\r\n")) == 0 {
				break
			}
		}
		if !strings.HasPrefix(status, "1") || status == "101" {
			return status, nil
		}
	}
}
