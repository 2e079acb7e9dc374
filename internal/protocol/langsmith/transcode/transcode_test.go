package transcode

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"sort"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/support/proctest"
)

// model is the text by the definition: whole characters as they are, each
// other byte as U+FFFD.
func model(raw []byte) string {
	var b strings.Builder
	for len(raw) > 0 {
		r, size := utf8.DecodeRune(raw)
		b.WriteRune(r) // RuneError is U+FFFD
		raw = raw[size:]
	}
	return b.String()
}

// appendText appends the text of raw as a reader of the JSON sees it.
func appendText(t testing.TB, dst, raw []byte) (text []byte, replaced int) {
	escaped, n := AppendJSON([]byte{'"'}, raw)
	var s string
	if err := json.Unmarshal(append(escaped, '"'), &s); err != nil {
		t.Fatalf("the text of %q is %q: %v", raw, escaped, err)
	}
	return append(dst, s...), n
}

func TestText(t *testing.T) {
	tests := []struct{ name, raw, want string }{
		{"ASCII stays", "plain text\r\n\x00\x1b[1m\x7f", "plain text\r\n\x00\x1b[1m\x7f"},
		{"characters of each length stay", "aé€𝄞", "aé€𝄞"},
		{"a character cut off at the end is replaced byte by byte", "ok\xe2\x82", "ok\uFFFD\uFFFD"},
		{"a lead byte without its rest is replaced, what follows is not", "\xe2A", "\uFFFDA"},
		{"lone continuation bytes are replaced each", "\x82\x82", "\uFFFD\uFFFD"},
		{"long forms are refused", "\xc0\x80\xe0\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"},
		{"surrogates are no characters", "\xed\xa0\x80", "\uFFFD\uFFFD\uFFFD"},
		{"nothing is above U+10FFFF", "\xf4\x90\x80\x80\xff", strings.Repeat("\uFFFD", 5)},
		{"U+FFFD in the stream is a character", "\uFFFD", "\uFFFD"},
		{"a byte order mark stays", "\uFEFFx", "\uFEFFx"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, n := appendText(t, nil, []byte(tt.raw))
			if string(got) != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if want := (len(tt.want) - len(tt.raw)) / Grown; n != want || Replaced([]byte(tt.raw)) != want {
				t.Errorf("%d bytes were replaced, Replaced says %d; want %d", n, Replaced([]byte(tt.raw)), want)
			}
		})
	}
}

func TestSettled(t *testing.T) {
	tests := []struct {
		name, raw string
		held      int
	}{
		{"a whole text", "aé€𝄞", 0},
		{"one byte of two", "a\xc3", 1},
		{"two bytes of three", "a\xe2\x82", 2},
		{"three bytes of four", "\xf0\x9d\x84", 3},
		{"a sequence that cannot become valid", "\xe0\x80", 0},
		{"continuation bytes alone", "\x80\x80\x80\x80", 0},
		{"nothing", "", 0},
		{"a whole character behind one cut off", "\xe2\x82a", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := len(tt.raw) - Settled([]byte(tt.raw)); got != tt.held {
				t.Errorf("%d bytes are held back, want %d", got, tt.held)
			}
		})
	}
}

// noise makes a stream of pieces that are hard to cut: text, control bytes,
// characters of each length, parts of characters, random bytes.
func noise(r *rand.Rand, size int) []byte {
	pieces := []string{"line of text\n", "\"\\\x00\x1f\x7f", "é", "€", "𝄞", "\u2028", "\xe2\x82", "\xf0\x9d\x84", "\xc3", "\x82", "\xff", "\xed\xa0\x80", "\uFFFD"}
	var b []byte
	for len(b) < size {
		if n := r.IntN(len(pieces) + 1); n < len(pieces) {
			b = append(b, pieces[n]...)
		} else {
			b = append(b, byte(r.Uint32()))
		}
	}
	return b
}

// cut turns a stream into text as it comes: in pieces of random size, with what
// is not settled held back.
func cut(t testing.TB, r *rand.Rand, raw []byte, m *Map) string {
	var text []byte
	var held []byte
	for len(raw) > 0 {
		n := min(len(raw), 1+r.IntN(1+r.IntN(50_000)))
		held = append(held, raw[:n]...)
		raw = raw[n:]
		whole := Settled(held)
		text, _ = appendText(t, text, held[:whole])
		m.Add(held[:whole])
		held = append([]byte(nil), held[whole:]...)
	}
	m.Add(held)
	text, _ = appendText(t, text, held)
	return string(text)
}

func TestTheTextDoesNotDependOnHowTheStreamWasCut(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		raw := noise(r, 200_000)
		var m Map
		text := cut(t, r, raw, &m)
		if text != model(raw) {
			t.Fatalf("seed %d: another text than that of the whole", seed)
		}
		if end := m.End(); end.Raw != int64(len(raw)) || end.Text() != int64(len(text)) {
			t.Fatalf("seed %d: the map ends at %+v, the stream at %d, its text at %d", seed, end, len(raw), len(text))
		}
	}
}

// starts are the points of raw where a character or a replaced byte begins,
// the end included.
func starts(raw []byte) []Point {
	points := []Point{{}}
	for i := 0; i < len(raw); {
		p := points[len(points)-1]
		r, size := utf8.DecodeRune(raw[i:])
		if r == utf8.RuneError && size == 1 {
			p.Replaced++
		}
		i += size
		p.Raw = int64(i)
		points = append(points, p)
	}
	return points
}

// stream is a raw stream in memory, of which the first freed bytes are gone.
type stream struct {
	raw   []byte
	freed int64
}

func (s stream) Base() (int64, error) { return s.freed, nil }

func (s stream) ReadAt(b []byte, off int64) (int, error) {
	n, err := bytes.NewReader(s.raw).ReadAt(b, off)
	if gone := min(s.freed-off, int64(n)); gone > 0 {
		clear(b[:gone])
	}
	return n, err
}

func checkMap(t *testing.T, m *Map, raw []byte, every int) {
	t.Helper()
	src := stream{raw: raw}
	points := starts(raw)
	for i := 0; i < len(points); i += every {
		p := points[i]
		end := p.Text()
		if i+1 < len(points) {
			end = points[i+1].Text() - 1
		}
		for text := p.Text(); text <= end; text++ { // inside the character, too
			got, err := m.Locate(text, src)
			if err != nil || got != p {
				t.Fatalf("Locate(%d) = %+v, %v; want %+v", text, got, err, p)
			}
		}
		if got, err := m.LocateRaw(p.Raw, src); err != nil || got != p {
			t.Fatalf("LocateRaw(%d) = %+v, %v; want %+v", p.Raw, got, err, p)
		}
	}
	for _, text := range []int64{-1, m.End().Text() + 1} {
		if _, err := m.Locate(text, src); err == nil {
			t.Errorf("text offset %d outside the map is found", text)
		}
	}
}

func TestEachTextOffsetIsFoundAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	clean := []byte(strings.Repeat("text with aé€𝄞 in it\n", 9000))
	streams := map[string][]byte{
		"clean text":              clean,
		"noise":                   noise(r, 150_000),
		"text, noise, text":       append(append(append([]byte{}, clean...), noise(r, 200_000)...), clean...),
		"one bad byte in between": append(append(append([]byte{}, clean...), 0xff), clean...),
	}
	for name, raw := range streams {
		t.Run(name, func(t *testing.T) {
			var m Map
			cut(t, r, raw, &m)
			checkMap(t, &m, raw, 173)
			for i, p := range m.points[:max(0, len(m.points)-1)] {
				if next := m.points[i+1]; next.Replaced != p.Replaced && next.Raw-p.Raw > step {
					t.Errorf("%d raw bytes between two points", next.Raw-p.Raw)
				}
			}
			if most := 2 + 3*len(raw)/step; len(m.points) > most {
				t.Errorf("%d points for %d bytes, want at most %d", len(m.points), len(raw), most)
			}
		})
	}
}

func TestAMapThatWasKeptInPartsIsTheSameMap(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	raw := append([]byte(strings.Repeat("clean\n", 50_000)), noise(r, 300_000)...)
	var m Map
	var kept []byte
	var saved int64
	for rest := raw; len(rest) > 0; {
		n := Settled(rest[:min(len(rest), 1+r.IntN(20_000))])
		if n == 0 {
			n = len(rest)
		}
		m.Add(rest[:n])
		rest = rest[n:]
		if r.IntN(3) == 0 || len(rest) == 0 {
			for _, p := range m.After(saved) {
				kept = AppendPoint(kept, p)
			}
			saved = m.End().Raw
		}
	}
	again := Parse(kept)
	if d := cmp.Diff(m.End(), again.End()); d != "" {
		t.Fatal(d)
	}
	checkMap(t, again, raw, 331)

	torn := Parse(kept[:len(kept)-PointSize/2])
	torn.Add(raw[torn.End().Raw:])
	if torn.End() != m.End() {
		t.Errorf("a torn map, completed from the stream, ends at %+v; want %+v", torn.End(), m.End())
	}
}

func TestOffsetsBehindAFreedHeadStay(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 4))
	raw := append(noise(r, 100_000), strings.Repeat("aé€𝄞\n", 4000)...)
	var m Map
	cut(t, r, raw, &m)
	all := starts(raw)
	for range 300 {
		src := stream{raw, r.Int64N(int64(len(raw)))}
		got := proctest.Value(m.AfterGap(src.freed, src))(t)
		i := sort.Search(len(all), func(i int) bool { return all[i].Raw >= got.Raw })
		if all[i] != got || got.Raw < src.freed || got.Raw > src.freed+3 {
			t.Fatalf("behind %d freed bytes the stream goes on at %+v; nearby is %+v", src.freed, got, all[i])
		}
		for range 20 {
			p := all[i+r.IntN(len(all)-i)]
			if got, err := m.Locate(p.Text(), src); err != nil || got != p {
				t.Fatalf("with %d bytes freed Locate(%d) = %+v, %v; want %+v", src.freed, p.Text(), got, err, p)
			}
		}
		if i > 3 {
			p := all[r.IntN(i-3)]
			if got, err := m.Locate(p.Text(), src); err != nil || got.Raw > p.Raw || p.Raw < src.freed && got.Raw >= src.freed {
				t.Fatalf("with %d bytes freed Locate(%d) = %+v, %v", src.freed, p.Text(), got, err)
			}
		}
	}
}

func TestSkippedBytesCountAsClean(t *testing.T) {
	raw := append(bytes.Repeat([]byte{0}, 1000), "\xffafter"...)
	var m Map
	m.Skip(1000)
	m.Add(raw[1000:])
	checkMap(t, &m, raw, 1)
	if got := m.End(); got != (Point{1006, 1}) {
		t.Errorf("the map ends at %+v", got)
	}
}

func TestJSON(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, raw := range []string{"", "a", "\"", "12345678\n", "1234567\\", "\x00\x01\x1f\x20\x7f", "é", strings.Repeat("x", 1000) + "\t", "\xff\xfe", "a\u2028b", string(noise(r, 50_000))} {
		got, n := AppendJSON([]byte{'"'}, []byte(raw))
		var text string
		if err := json.Unmarshal(append(got, '"'), &text); err != nil {
			t.Fatalf("%.40q: %v", raw, err)
		}
		if text != model([]byte(raw)) || n != Replaced([]byte(raw)) {
			t.Errorf("%.40q became %.40q with %d bytes replaced", raw, text, n)
		}
	}
}

func FuzzTranscode(f *testing.F) {
	f.Add([]byte("plain \"text\"\n"), uint64(1))
	f.Add([]byte("\xe2\x82\xac\xe2\x82\xff\xf0\x9d\x84\x9e"), uint64(2))
	f.Add([]byte("\xf0\x9d\x84"), uint64(3))
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		var m Map
		text := cut(t, r, raw, &m)
		if text != model(raw) {
			t.Fatalf("text is %q, want %q", text, model(raw))
		}
		got, _ := AppendJSON([]byte{'"'}, raw)
		if len(got) > 1+MaxEscaped*len(raw) {
			t.Errorf("%d bytes became %d", len(raw), len(got))
		}
		var back string
		if err := json.Unmarshal(append(got, '"'), &back); err != nil || back != text {
			t.Fatalf("JSON gives %q, %v; want %q", back, err, text)
		}
		checkMap(t, &m, raw, 1)
	})
}

func FuzzParse(f *testing.F) {
	f.Add(AppendPoint(AppendPoint(nil, Point{10, 1}), Point{20, 1}))
	f.Add([]byte("0123456789abcdefg"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := Parse(b)
		last := Point{}
		for _, p := range m.points {
			if p.Raw <= last.Raw || p.Replaced < last.Replaced || p.Replaced-last.Replaced > p.Raw-last.Raw {
				t.Fatalf("%+v follows %+v", p, last)
			}
			last = p
		}
	})
}

func BenchmarkAppendJSON(b *testing.B) {
	line := strings.Repeat("0123456789abcdef", 5)[:79] + "\n"
	for name, raw := range map[string]string{"ASCII lines": line, "seq": "0123456\n", "mixed": "aé€𝄞日本語ü text\n", "binary": "\xff\x00\x80\n"} {
		data := []byte(strings.Repeat(raw, 128<<10/len(raw)))
		b.Run(name, func(b *testing.B) {
			dst := make([]byte, 0, MaxEscaped*len(data))
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				AppendJSON(dst, data)
			}
		})
	}
}
