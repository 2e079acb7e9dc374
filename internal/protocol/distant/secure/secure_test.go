package secure

import (
	"bytes"
	"crypto/ecdh"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol/distant/wire"
	"github.com/tend-run/tend/internal/support/proctest"
	"go.uber.org/goleak"
	"golang.org/x/crypto/chacha20poly1305"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The vectors come from the serializer and the cryptography of distant 0.20.0.

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b := proctest.Value(hex.DecodeString(s))(t)
	return b
}

func scalar(t *testing.T, n byte) *ecdh.PrivateKey {
	t.Helper()
	k := proctest.Value(ecdh.P256().NewPrivateKey(append(make([]byte, 31), n)))(t)
	return k
}

func TestKeySchedule(t *testing.T) {
	for _, tc := range []struct {
		name string
		salt func(i int) (a, b byte)
		want string
	}{
		{"constant salts", func(int) (byte, byte) { return 0x0f, 0xf0 }, "cd6a5fe65eb16c70f0dd6ea262ff0aff42c80956556d8a5e38473830041e14fb"},
		{"counting salts", func(i int) (byte, byte) { return byte(i), byte(255 - 3*i) }, "2195a147d19d912fa607f5b276d2c04b3fd06f0e3a592eaf0d9111f898b6a5d9"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := &share{private: scalar(t, 1)}, &share{private: scalar(t, 2)}
			for i := range saltSize {
				a.salt[i], b.salt[i] = tc.salt(i)
			}
			for _, side := range [][2]*share{{a, b}, {b, a}} {
				key := proctest.Value(side[0].derive(side[1].message()))(t)
				if got := key.String(); got != tc.want {
					t.Errorf("the key is %s, want %s", got, tc.want)
				}
			}
		})
	}
}

func TestSealedFrames(t *testing.T) {
	aead := proctest.Value(chacha20poly1305.NewX(unhex(t, "2195a147d19d912fa607f5b276d2c04b3fd06f0e3a592eaf0d9111f898b6a5d9")))(t)
	nonce := bytes.Repeat([]byte{0x24}, nonceSize)
	for _, tc := range []struct {
		name, plain, want string
	}{
		{"a heartbeat", "", "0000000000000028" + hex.EncodeToString(nonce) + "81ed3f75ea8af78150b5466999e6502b"},
		{"Connect", "a7436f6e6e656374", "0000000000000030" + hex.EncodeToString(nonce) + "89bd1460d485164a83a2a72aa04b3c3ca7e8055bca1f4925"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			buf := append(make([]byte, lengthSize), nonce...)
			frame := sealWith(aead, append(buf, unhex(t, tc.plain)...))
			if got := hex.EncodeToString(frame); got != tc.want {
				t.Errorf("the frame is\n%s, want\n%s", got, tc.want)
			}
			c := &Conn{aead: aead}
			plain, err := c.open(frame[lengthSize:])
			if err != nil || hex.EncodeToString(plain) != tc.plain {
				t.Errorf("opened: %x, %v", plain, err)
			}
		})
	}
}

func TestHelloVectors(t *testing.T) {
	resume := Hello{Resume: true, ID: 0xdeadbeef, OTP: Key(bytes.Repeat([]byte{9}, KeySize))}
	for _, tc := range []struct {
		want  string
		hello Hello
	}{
		{"a7436f6e6e656374", Hello{}},
		{"81a95265636f6e6e65637482a26964cedeadbeefa36f7470c420" + hex.EncodeToString(resume.OTP[:]), resume},
	} {
		if got := hex.EncodeToString(tc.hello.message()); got != tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
		got, err := parseHello(unhex(t, tc.want))
		if diff := cmp.Diff(tc.hello, got); err != nil || diff != "" {
			t.Error(err, diff)
		}
	}
}

func TestStatsVector(t *testing.T) {
	got, err := parseStats(unhex(t, "93cd012c0702"))
	if want := (Stats{300, 7, 2}); err != nil || got != want {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

func TestAuthVectors(t *testing.T) {
	const want = "83a474797065ae617574685f6368616c6c656e6765a97175657374696f6e739183a56c6162656ca36b6579a474657874af50726f766964652061206b65793a20a76f7074696f6e7380a76f7074696f6e7380"
	if got := hex.EncodeToString(wire.Pack(challenge)); got != want {
		t.Errorf("the challenge is\n%s, want\n%s", got, want)
	}
	if got := hex.EncodeToString(wire.Pack(finished)); got != "81a474797065ad617574685f66696e6973686564" {
		t.Errorf("auth_finished is %s", got)
	}
}

func TestChoice(t *testing.T) {
	const encrypted = "83b1636f6d7072657373696f6e5f6c6576656cc0b0636f6d7072657373696f6e5f74797065c0af656e6372797074696f6e5f74797065b1584368614368613230506f6c7931333035"
	const plain = "83b1636f6d7072657373696f6e5f6c6576656cc0b0636f6d7072657373696f6e5f74797065c0af656e6372797074696f6e5f74797065c0"
	const gzip = "83b1636f6d7072657373696f6e5f6c6576656cc0b0636f6d7072657373696f6e5f74797065a4477a6970af656e6372797074696f6e5f74797065b1584368614368613230506f6c7931333035"
	for _, tc := range []struct {
		name, message string
		ok            bool
	}{
		{"encryption without compression is taken", encrypted, true},
		{"no encryption is refused: the key would be told to whoever listens", plain, false},
		{"compression, which was not offered, is refused, so nothing is ever inflated", gzip, false},
		{"half a message is refused", encrypted[:60], false},
		{"something else is refused", "93010203", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := checkChoice(unhex(t, tc.message)); (err == nil) != tc.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

// pair are two ends of a TCP connection.
func pair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	client = proctest.Value(net.Dial("tcp", l.Addr().String()))(t)
	server = proctest.Value(l.Accept())(t)
	for _, c := range []net.Conn{client, server} {
		c.SetDeadline(time.Now().Add(2 * time.Minute))
		t.Cleanup(func() { c.Close() })
	}
	return client, server
}

type side struct {
	conn  *Conn
	hello Hello

	otp Key
	err error
}

// accept is a whole server side.
func accept(nc net.Conn, key Key) (s side) {
	if s.conn, s.hello, s.err = Server(nc); s.err == nil && !s.hello.Resume {
		if s.err = s.conn.Authenticate(7, key); s.err == nil {
			s.otp, s.err = s.conn.Exchange()
		}
	}
	if s.err != nil {
		nc.Close()
	}
	return s
}

func TestConnect(t *testing.T) {
	right, wrong := Key{1}, Key{2}
	for _, tc := range []struct {
		name string
		key  Key
		ok   bool
	}{{"the right key connects, and both sides make the same password", right, true}, {"a wrong key does not", wrong, false}} {
		t.Run(tc.name, func(t *testing.T) {
			client, server := pair(t)
			done := make(chan side)
			go func() { done <- accept(server, right) }()
			c := proctest.Value(Client(client, Hello{}))(t)
			id, err := c.Login(tc.key)
			if !tc.ok {
				if s := <-done; err == nil || !errors.Is(s.err, ErrKey) {
					t.Errorf("client: %v, server: %v", err, s.err)
				}
				return
			}
			if err != nil || id != 7 {
				t.Fatal(id, err)
			}
			otp, err := c.Exchange()
			s := <-done
			if err != nil || s.err != nil || !otp.Equal(s.otp) || otp.Equal(Key{}) {
				t.Fatal(err, s.err, otp, s.otp)
			}
			for _, text := range []string{"", "hello", string(make([]byte, 1<<20))} {
				go s.conn.WriteFrame([]byte(text))
				if got, err := c.ReadFrame(); err != nil || string(got) != text {
					t.Fatalf("%d bytes, %v; want %d", len(got), err, len(text))
				}
			}
		})
	}
}

// recorder keeps what is written to a connection.
type recorder struct {
	net.Conn
	sent bytes.Buffer
}

func (r *recorder) Write(b []byte) (int, error) {
	r.sent.Write(b)
	return r.Conn.Write(b)
}

func TestReplayedHandshake(t *testing.T) {
	client, server := pair(t)
	rec := &recorder{Conn: client}
	done := make(chan side)
	go func() { done <- accept(server, Key{1}) }()
	c := proctest.Value(Client(rec, Hello{}))(t)
	proctest.Value(c.Login(Key{1}))(t)
	proctest.Value(c.Exchange())(t)
	if s := <-done; s.err != nil {
		t.Fatal(s.err)
	}
	replay, server := pair(t)
	go func() { done <- accept(server, Key{1}) }()
	proctest.Value(replay.Write(rec.sent.Bytes()))(t)
	if s := <-done; !errors.Is(s.err, ErrFrame) {
		t.Errorf("what a client had sent before was taken once more: %v", s.err)
	}
}

// A frame holds memory as its bytes come, not as they are announced.
func TestALargeFrameIsReadAsItComes(t *testing.T) {
	want := make([]byte, 21<<20)
	for i := range want {
		want[i] = byte(i * i >> 8)
	}
	for _, size := range []int{0, 1, firstPiece - 1, firstPiece, firstPiece + 1, 5*firstPiece + 3, len(want)} {
		frame := append(binary.BigEndian.AppendUint64(nil, uint64(size)), want[:size]...)
		client, server := net.Pipe()
		var both sync.WaitGroup
		both.Go(func() { client.Write(frame) })
		c := newConn(server)
		c.Trust()
		got, err := c.ReadFrameInto(make([]byte, 0, 1<<10))
		if err != nil || !bytes.Equal(got, want[:size]) {
			t.Errorf("%d bytes: %d came, %v", size, len(got), err)
		}
		client.Close()
		server.Close()
		both.Wait()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c := newConn(nil)
	c.Trust()
	c.r.Reset(io.MultiReader(bytes.NewReader(binary.BigEndian.AppendUint64(nil, MaxFrame)), bytes.NewReader(want[:firstPiece])))
	if _, err := c.ReadFrame(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a frame: %v", err)
	}
	runtime.ReadMemStats(&after)
	if made := after.TotalAlloc - before.TotalAlloc; made > MaxFrame/4 {
		t.Errorf("1 MiB of an announced frame took %d bytes of memory", made)
	}
}

// A frame that is read is on the budget as far as it has come, and off it when the next begins.
func TestAFrameIsCharged(t *testing.T) {
	whole := budget.New(4 << 20)
	frame := func(size, come int) io.Reader {
		return bytes.NewReader(append(binary.BigEndian.AppendUint64(nil, uint64(size)), make([]byte, come)...))
	}
	held := whole.Charge()
	c := newConn(nil)
	c.Trust()
	c.Charge(held)
	c.r.Reset(io.MultiReader(frame(3<<20, 3<<20), frame(1<<10, 1<<10)))
	if got, err := c.ReadFrame(); err != nil || len(got) != 3<<20 || whole.Used() != 3<<20 {
		t.Errorf("%d bytes came, %v, %d are held", len(got), err, whole.Used())
	}
	if got, err := c.ReadFrame(); err != nil || len(got) != 1<<10 || whole.Used() != 0 {
		t.Errorf("%d bytes came, %v, %d are held", len(got), err, whole.Used())
	}
	c.r.Reset(frame(6<<20, 6<<20))
	if _, err := c.ReadFrame(); !errors.As(err, new(*budget.BusyError)) || whole.Used() > 4<<20 {
		t.Errorf("without room: %v, %d are held", err, whole.Used())
	}
	held.Release()
	if whole.Used() != 0 {
		t.Errorf("%d are held at the end", whole.Used())
	}
}

func TestBadFrames(t *testing.T) {
	for _, tc := range []struct {
		name, sent string
		want       error
	}{
		{"a frame over the limit is refused before it is read", "0000000000010001", ErrFrame},
		{"a length of 64 bits is refused", "ffffffffffffffff", ErrFrame},
		{"half a length is an end in the middle", "00000000", io.ErrUnexpectedEOF},
		{"half a frame is an end in the middle", "000000000000000401", io.ErrUnexpectedEOF},
		{"nothing is an end", "", io.EOF},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client, server := pair(t)
			client.Write(unhex(t, tc.sent))
			client.Close()
			if _, err := newConn(server).ReadFrame(); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func FuzzSetup(f *testing.F) {
	s := &share{private: must(ecdh.P256().NewPrivateKey(append(make([]byte, 31), 1)))}
	for _, seed := range [][]byte{s.message(), Hello{}.message(), Hello{Resume: true}.message(), wire.Pack(challenge), {0x93, 1, 2, 3}, {0xdf, 0xff, 0xff, 0xff, 0xff}} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		// None of them may panic, and what is read is what would be sent.
		if h, err := parseHello(b); err == nil {
			if again, err := parseHello(h.message()); err != nil || again != h {
				t.Errorf("%+v became %+v, %v", h, again, err)
			}
		}
		parseShare(b)
		parseStats(b)
		parseAnswer(b)
		checkChoice(b)
		(&Conn{r: nil, aead: must(chacha20poly1305.NewX(make([]byte, KeySize)))}).open(bytes.Clone(b))
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
