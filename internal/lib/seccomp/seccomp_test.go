package seccomp

import (
	"math/rand/v2"
	"testing"
)

// run is what the kernel answers to a call.
func (f Filter) run(t *testing.T, arch, number uint32, args [6]uint64) uint32 {
	t.Helper()
	var acc, kept uint32
	for at, steps := 0, 0; ; at, steps = at+1, steps+1 {
		if at >= len(f) || steps > 255 {
			t.Fatalf("call %d runs off the program at %d", number, at)
		}
		in := f[at]
		jump := func(yes bool) {
			if yes {
				at += int(in.JT)
			} else {
				at += int(in.JF)
			}
		}
		switch in.Code {
		case load:
			switch {
			case in.K == offNumber:
				acc = number
			case in.K == offArch:
				acc = arch
			case in.K >= offArgs && in.K%8 == 0 && in.K < offArgs+48:
				acc = uint32(args[(in.K-offArgs)/8])
			case in.K >= offArgs && in.K%8 == 4 && in.K < offArgs+48:
				acc = uint32(args[(in.K-offArgs)/8] >> 32)
			default:
				t.Fatalf("a load of %d", in.K)
			}
		case jumpEqual:
			jump(acc == in.K)
		case jumpLess:
			jump(acc >= in.K)
		case jumpBits:
			jump(acc&in.K != 0)
		case exclusive:
			acc ^= in.K
		case either:
			acc |= kept
		case keep:
			kept = acc
		case answer:
			return in.K
		default:
			t.Fatalf("instruction %+v", in)
		}
	}
}

// want is what the rules say, read one after the other.
func want(arch, number uint32, args [6]uint64, here uint32, rules []Rule) uint32 {
	if arch != here || number >= x32 {
		return deny | enosys
	}
	for _, r := range rules {
		if r.Call != number {
			continue
		}
		fits := func(w *When) bool {
			v := uint32(args[w.Arg])
			if w.Upper {
				v = uint32(args[w.Arg] >> 32)
			}
			hit := w.always() || v&w.Bits != 0
			for _, is := range w.Is {
				hit = hit || v == is
			}
			if w.IsNot != nil {
				hit = true
				for _, not := range w.IsNot {
					hit = hit && v != not
				}
			}
			return hit
		}
		if fits(&r.When) && (r.And == nil || fits(r.And)) {
			return deny | uint32(r.Errno)
		}
	}
	return allow
}

func TestAFilterSaysWhatTheRulesSay(t *testing.T) {
	const here = 0xc000003e
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 300 {
		var rules []Rule
		for range r.IntN(60) {
			rule := Rule{Call: r.Uint32N(500), Errno: uint16(1 + r.IntN(3))}
			if round%7 == 0 {
				rule.Call = r.Uint32N(3) // at the edges
			}
			when := func() (w When) {
				switch r.IntN(8) {
				case 0:
					w = When{Arg: uint8(r.IntN(6)), Bits: 1 << r.IntN(32)}
				case 1:
					w = When{Arg: uint8(r.IntN(6)), Is: []uint32{r.Uint32N(4), 9}}
				case 2:
					w = When{Arg: uint8(r.IntN(6)), IsNot: []uint32{0, 2, 0xffffffff}}
				}
				w.Upper = !w.always() && r.IntN(4) == 0
				return w
			}
			if rule.When = when(); r.IntN(3) == 0 {
				rule.And = new(when())
			}
			rules = append(rules, rule)
		}
		f := Assemble(here, rules)
		if len(f) > 255 {
			t.Fatalf("%d instructions for %d rules", len(f), len(rules))
		}
		numbers := []uint32{0, 1, 499, 500, 501, x32 - 1, x32, x32 + 1, 1<<32 - 1}
		for n := range uint32(502) {
			numbers = append(numbers, n)
		}
		for _, n := range numbers {
			for _, arch := range []uint32{here, 0x40000003} {
				var args [6]uint64
				for i := range args {
					args[i] = []uint64{r.Uint64N(5), 1<<32 - 1, r.Uint64(), 9}[r.IntN(4)]
				}
				if got, want := f.run(t, arch, n, args), want(arch, n, args, here, rules); got != want {
					t.Fatalf("call %d of %#x with %v: %#x; want %#x by %+v", n, arch, args, got, want, rules)
				}
			}
		}
	}
}

// A call with the whole key goes through, whatever its other arguments are; with one bit of
// it changed, it does not. All takes as many steps.
func TestAKeyOpensOneCall(t *testing.T) {
	const here = 0xc000003e
	r := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		var k Key
		for i := range k {
			k[i] = r.Uint32()
		}
		f := Assemble(here, []Rule{{Call: 56, Errno: 1}, {Call: 435, Errno: enosys, Key: &k}, {Call: 436, Errno: 1}})
		args := [6]uint64{r.Uint64(), r.Uint64(), r.Uint64()}
		for i := range 3 {
			args[3+i] = uint64(k[2*i]) | uint64(k[2*i+1])<<32
		}
		if got := f.run(t, here, 435, args); got != allow {
			t.Fatalf("with the key: %#x", got)
		}
		for _, other := range []uint32{56, 436} {
			if got := f.run(t, here, other, args); got != deny|1 {
				t.Fatalf("call %d with the key: %#x", other, got)
			}
		}
		for bit := range 192 {
			wrong := args
			wrong[3+bit/64] ^= 1 << (bit % 64)
			if got := f.run(t, here, 435, wrong); got != deny|enosys {
				t.Fatalf("with bit %d of the key changed: %#x", bit, got)
			}
		}
		if got := f.run(t, here, 435, [6]uint64{}); got != deny|enosys {
			t.Fatalf("without a key: %#x", got)
		}
	}
}

// The list is short enough for the kernel, and found by few comparisons.
func TestTheDefaultIsShort(t *testing.T) {
	f, err := Default()
	if err == ErrUnsupported {
		return
	}
	if err != nil || len(f) > 135 {
		t.Errorf("%d instructions, %v", len(f), err)
	}
	t.Logf("%d instructions", len(f))
	if keyed, err := Keyed(Key{1, 2, 3, 4, 5, 6}); err != nil || len(keyed) > 160 {
		t.Errorf("with a key %d instructions, %v", len(keyed), err)
	}
}
