package agent

import "slices"

// assembly puts the blocks of a reply together from pieces, within bounds.
type assembly struct {
	parts map[int64]*piece
	bytes int
}

// piece is a block that is still to grow.
type piece struct {
	Block
	text, opaque []byte
}

const maxBlocks = 64 // of one reply

var errLarge = &ModelError{Kind: Broken, Message: "it is larger than any reply can be"}

func (a *assembly) begin(i int64, b Block) error {
	if a.parts == nil {
		a.parts = map[int64]*piece{}
	}
	if a.parts[i] != nil {
		return &ModelError{Kind: Broken, Message: "two of its parts have one number"}
	}
	if len(a.parts) >= maxBlocks {
		return errLarge
	}
	a.parts[i] = &piece{Block: b}
	return a.count(len(b.Text) + len(b.ID) + len(b.Name) + len(b.Input) + len(b.Opaque))
}

// part returns the block with a number, and counts what is added to it.
func (a *assembly) part(i int64, n int) (*piece, error) {
	b := a.parts[i]
	if b == nil {
		return nil, &ModelError{Kind: Broken, Message: "a piece of it belongs to no part"}
	}
	return b, a.count(n)
}

func (a *assembly) count(n int) error {
	if a.bytes += n; a.bytes > maxAnswer {
		return errLarge
	}
	return nil
}

func (a *assembly) text(i int64, s string) error {
	b, err := a.part(i, len(s))
	if err == nil {
		b.text = append(b.text, s...)
	}
	return err
}

func (a *assembly) opaque(i int64, s string) error {
	b, err := a.part(i, len(s))
	if err == nil {
		b.opaque = append(b.opaque, s...)
	}
	return err
}

func (a *assembly) input(i int64, s string) error {
	b, err := a.part(i, len(s))
	if err == nil {
		b.Input = append(b.Input, s...)
	}
	return err
}

// blocks returns the parts by their numbers.
func (a *assembly) blocks() []Block {
	var numbers []int64
	for i := range a.parts {
		numbers = append(numbers, i)
	}
	slices.Sort(numbers)
	var out []Block
	for _, i := range numbers {
		b := a.parts[i].Block
		b.Text += string(a.parts[i].text)
		b.Opaque += string(a.parts[i].opaque)
		out = append(out, b)
	}
	return out
}
