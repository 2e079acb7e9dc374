package sockdiag

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// message is one of an answer.
type message struct {
	kind uint16
	body []byte
}

// socketMessage is one about a socket of IPv4.
func socketMessage(local, remote netip.AddrPort, inode uint32) message {
	b := make([]byte, sizeSocket)
	b[0], b[1] = unix.AF_INET, unix.BPF_TCP_ESTABLISHED
	binary.BigEndian.PutUint16(b[4:], local.Port())
	binary.BigEndian.PutUint16(b[6:], remote.Port())
	copy(b[8:], local.Addr().AsSlice())
	copy(b[24:], remote.Addr().AsSlice())
	binary.NativeEndian.PutUint32(b[64:], 1000)
	binary.NativeEndian.PutUint32(b[68:], inode)
	return message{unix.SOCK_DIAG_BY_FAMILY, b}
}

// datagram puts messages into one; pad is how many bytes more than 0 each has for
// attributes.
func datagram(sequence uint32, pad int, messages ...message) (b []byte) {
	for _, m := range messages {
		for len(b)%unix.NLMSG_ALIGNTO != 0 {
			b = append(b, 0)
		}
		b = binary.NativeEndian.AppendUint32(b, uint32(unix.SizeofNlMsghdr+len(m.body)+pad))
		b = binary.NativeEndian.AppendUint16(b, m.kind)
		b = binary.NativeEndian.AppendUint16(b, 0)
		b = binary.NativeEndian.AppendUint32(b, sequence)
		b = binary.NativeEndian.AppendUint32(b, 0)
		b = append(append(b, m.body...), make([]byte, pad)...)
	}
	return b
}

func number(n int32) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(n)) }

var (
	one, two = at("127.0.0.1:8080"), at("127.0.0.2:40000")
	done     = message{unix.NLMSG_DONE, number(0)}
)

func TestAQuestionIsAsSpecified(t *testing.T) {
	q := question{family: unix.AF_INET, dump: true, states: 1 << Listen, local: one, remote: two}
	b := q.encode(7)
	want := bytes.Join([][]byte{
		number(72), binary.NativeEndian.AppendUint16(nil, 20), binary.NativeEndian.AppendUint16(nil, 0x301), number(7), number(0),
		{2, 6, 0, 0}, number(1 << 10), {0x1f, 0x90, 0x9c, 0x40},
		{127, 0, 0, 1}, make([]byte, 12), {127, 0, 0, 2}, make([]byte, 12), number(0), number(-1), number(-1),
	}, nil)
	if !bytes.Equal(b, want) {
		t.Errorf("got\n%x; want\n%x", b, want)
	}
}

// TestWholeAnswers: lengths that are no multiple of 4 are padded, and attributes are passed
// over.
func TestWholeAnswers(t *testing.T) {
	for pad := range 9 {
		s, err := parseOne(datagram(5, pad, socketMessage(one, two, 42)), 5, one, two)
		if err != nil || s != (Socket{one, two, unix.BPF_TCP_ESTABLISHED, 1000, 42}) {
			t.Errorf("with %d bytes more: %+v, %v", pad, s, err)
		}
		b := datagram(5, pad, socketMessage(one, two, 42), socketMessage(two, one, 0), socketMessage(two, one, 43), done)
		all, more, err := parsePart(nil, b, 5)
		if more || err != nil || len(all) != 2 || all[0].Inode != 42 || all[1].Local != two {
			t.Errorf("with %d bytes more: %+v, %v, %v", pad, all, more, err)
		}
		all, more, err = parsePart(all, datagram(5, pad, socketMessage(one, two, 44)), 5)
		if !more || err != nil || len(all) != 3 {
			t.Errorf("a part with %d bytes more: %+v, %v, %v", pad, all, more, err)
		}
	}
	if s, err := parseOne(datagram(5, 0, message{unix.NLMSG_ERROR, number(-int32(unix.ENOENT))}), 5, one, two); !errors.Is(err, ErrNone) {
		t.Errorf("none is %+v, %v", s, err)
	}
	if s, err := parseOne(datagram(5, 0, socketMessage(one, two, 42)), 5, two, one); !errors.Is(err, ErrNone) {
		t.Errorf("another one is %+v, %v", s, err)
	}
}

func TestAnAnswerThatIsNotWholeIsNone(t *testing.T) {
	whole := datagram(5, 0, socketMessage(one, two, 42))
	short := socketMessage(one, two, 42)
	short.body = short.body[:sizeSocket-1]
	strange := socketMessage(one, two, 42)
	strange.body[0] = unix.AF_UNIX
	longer := slices.Clone(whole)
	binary.NativeEndian.PutUint32(longer, uint32(len(longer)+1))
	for name, b := range map[string][]byte{
		"15 bytes":                       whole[:15],
		"a header alone":                 make([]byte, unix.SizeofNlMsghdr),
		"zeros":                          make([]byte, 4096),
		"an error":                       datagram(5, 0, message{unix.NLMSG_ERROR, number(-int32(unix.EPERM))}),
		"an error without its number":    datagram(5, 0, message{unix.NLMSG_ERROR, nil}),
		"an error that is none":          datagram(5, 0, message{unix.NLMSG_ERROR, number(0)}),
		"the kernel lacks the part":      datagram(5, 0, message{unix.NLMSG_DONE, number(-int32(unix.ENOENT))}),
		"a message of another kind":      datagram(5, 0, message{unix.NLMSG_NOOP, whole[16:]}),
		"a message that is cut":          whole[:len(whole)-1],
		"a message that is too short":    datagram(5, 0, short),
		"a length that is too long":      longer,
		"a length less than the header":  append(number(1), make([]byte, 100)...),
		"a length that is not in memory": bytes.Repeat([]byte{0xff}, 100),
		"another sequence":               datagram(6, 0, socketMessage(one, two, 42)),
		"the sequence before":            datagram(4, 0, socketMessage(one, two, 42)),
		"another family":                 datagram(5, 0, strange),
	} {
		if s, err := parseOne(b, 5, one, two); err == nil || errors.Is(err, ErrNone) {
			t.Errorf("%s is taken for %+v, %v", name, s, err)
		}
		if all, more, err := parsePart(nil, b, 5); err == nil {
			t.Errorf("%s is taken for %+v, %v", name, all, more)
		}
	}
	for name, b := range map[string][]byte{
		"nothing":                  nil,
		"the end of all":           datagram(5, 0, done),
		"an end before the socket": datagram(5, 0, done, socketMessage(one, two, 42)),
	} {
		if s, err := parseOne(b, 5, one, two); err == nil {
			t.Errorf("%s is taken for %+v", name, s)
		}
	}
	for name, b := range map[string][]byte{
		"a few bytes after a message":    append(datagram(5, 0, socketMessage(one, two, 42)), 1, 2, 3),
		"another sequence in the middle": append(datagram(5, 0, socketMessage(one, two, 42)), datagram(6, 0, done)...),
	} {
		if all, more, err := parsePart(nil, b, 5); err == nil {
			t.Errorf("%s is taken for %+v, %v", name, all, more)
		}
	}
}

// FuzzDiag: no answer of the kernel makes the parser panic or is about another socket.
func FuzzDiag(f *testing.F) {
	f.Add(datagram(5, 0, socketMessage(one, two, 42)))
	f.Add(datagram(5, 4, socketMessage(one, two, 42), socketMessage(two, one, 43), done))
	f.Add(datagram(5, 0, message{unix.NLMSG_ERROR, number(-int32(unix.ENOENT))}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parseOne(b, 5, one, two); err == nil && (unmapped(s.Local) != one || unmapped(s.Remote) != two || s.UID < 0) {
			t.Errorf("%+v", s)
		}
		all, _, err := parsePart(nil, b, 5)
		if err != nil && all != nil || len(all) > len(b)/sizeSocket {
			t.Errorf("%d bytes are %+v, %v", len(b), all, err)
		}
		for _, s := range all {
			if !s.Local.IsValid() || !s.Remote.IsValid() || s.UID < 0 || s.Inode == 0 {
				t.Errorf("%+v", s)
			}
		}
	})
}
