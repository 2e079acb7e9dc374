package chat

import (
	"time"

	"github.com/tend-run/tend/internal/heal/agent"
)

// Phase says whose turn it is.
type Phase uint8

// Phases of a chat.
const (
	Idle     Phase = iota // the person's
	Working               // the model's
	Asking                // the person's: to answer
	Stopping              // the model's, and it is about to end
)

// State is the state of a chat. The zero value is a chat without messages.
type State struct {
	Entries int64
	At      time.Time // of the newest
	Phase   Phase
	// LastID and LastSaid are the ID and the number of the newest message of the person.
	LastID   string
	LastSaid int64
	// Question is the number of the open question, or of the one that was answered last.
	Question int64
	// Answers are all that the person has given, by the numbers of their questions: a client may
	// repeat one late.
	Answers map[int64]bool
	// Workers that have begun since the last action of the person, and in all.
	Workers int
	// Steps and Used of the turn; Total and Cost of all turns.
	Steps int
	Used  agent.Usage
	Total agent.Usage
	Cost  float64
	// Messages are the conversation as it is sent to the model. The last one is the
	// person's, or the model's with Pending calls, some of which have Results.
	Messages []agent.Message
	Pending  []string
	Results  map[string]agent.Block
	Cut      bool // the last message was cut off
	// Calls of the last message that have begun, that the person Allowed, and that were
	// Asked for.
	Begun   map[string]bool
	Allowed map[string]bool
	Asked   map[string]*Entry
	// Made counts all calls that have begun.
	Made int
	// Changing has, for each turn by the number of its message, the number (as in Made) of
	// its newest call that may have changed something.
	Changing map[int64]int
	// TakenBack has the turns that were taken back, each with the episode that did it.
	TakenBack map[int64]string
}

func (s *State) take(e *Entry) {
	s.Entries++
	s.At = e.At
	if s.Begun == nil {
		s.expect(nil)
	}
	switch e.Kind {
	case Said:
		s.Phase, s.LastID, s.LastSaid, s.Question = Working, e.ID, s.Entries, 0
		s.Steps, s.Used, s.Workers = 0, agent.Usage{}, 0
		s.close()
		s.tell(e.Text)
	case Began:
		s.Workers++
	case Reply:
		s.Steps++
		s.Used.Add(e.Usage)
		s.Total.Add(e.Usage)
		s.Cost += e.Cost
		if e.Message != nil {
			s.reply(*e.Message)
			s.Cut = e.Stop == agent.MaxTokens || e.Stop == agent.Full
		}
	case Call:
		s.Begun[e.Call] = true
		s.made(e.Tool)
	case Question:
		q := *e
		q.Seq = s.Entries
		s.Asked[e.Call] = &q
		s.Question = s.Entries
		if s.Phase == Working {
			s.Phase = Asking
		}
	case Answer:
		if s.Phase == Asking && e.Question == s.Question {
			s.Phase, s.Workers = Working, 0
			if s.Answers == nil {
				s.Answers = map[int64]bool{}
			}
			s.Answers[e.Question] = e.Yes
		}
	case Again:
		s.Allowed[e.Call] = true
		tool := ""
		if q := s.Asked[e.Call]; q != nil {
			tool = q.Tool
		}
		s.made(tool)
	case Result:
		s.result(agent.Block{Kind: agent.ResultBlock, ID: e.Call, Text: e.Text, Error: e.Error})
	case Told:
		s.tell(e.Text)
	case Stopped:
		if s.Phase == Working {
			s.Phase = Stopping
		}
	case Back:
		if s.TakenBack == nil {
			s.TakenBack = map[int64]string{}
		}
		s.TakenBack[e.Turn] = e.Episode
		s.tell(e.Text)
	case End:
		s.Phase, s.Question = Idle, 0
		s.close()
	}
}

// reply adds a message of the model.
func (s *State) reply(m agent.Message) {
	s.Messages = append(s.Messages, m)
	var calls []string
	for _, b := range m.Blocks {
		if b.Kind == agent.CallBlock {
			calls = append(calls, b.ID)
		}
	}
	s.expect(calls)
}

// expect: these calls are to be made.
func (s *State) expect(calls []string) {
	s.Pending, s.Results, s.Begun, s.Allowed, s.Asked = calls, map[string]agent.Block{}, map[string]bool{}, map[string]bool{},
		map[string]*Entry{}
}

// result adds that of a call. With the last one the model is to answer.
func (s *State) result(b agent.Block) {
	s.Results[b.ID] = b
	var all []agent.Block
	for _, id := range s.Pending {
		one, ok := s.Results[id]
		if !ok {
			return
		}
		all = append(all, one)
	}
	if len(all) > 0 {
		s.Messages = append(s.Messages, agent.Message{Role: agent.User, Blocks: all})
		s.Pending = nil
	}
}

// close gives each call that has none a result: nobody makes it any more.
func (s *State) close() {
	for _, id := range s.Pending {
		if _, ok := s.Results[id]; !ok {
			s.result(agent.Block{Kind: agent.ResultBlock, ID: id, Text: "not made: the turn was ended", Error: true})
		}
	}
}

// tell adds a text for the model.
func (s *State) tell(text string) {
	b := agent.Block{Text: text}
	if n := len(s.Messages); n > 0 && s.Messages[n-1].Role == agent.User {
		last := s.Messages[n-1]
		s.Messages[n-1] = agent.Message{Role: agent.User, Blocks: append(append([]agent.Block(nil), last.Blocks...), b)}
		return
	}
	s.Messages = append(s.Messages, agent.Message{Role: agent.User, Blocks: []agent.Block{b}})
}

// made counts a call of a tool that is begun.
func (s *State) made(tool string) {
	s.Made++
	if !changes(tool) {
		return
	}
	if s.Changing == nil {
		s.Changing = map[int64]int{}
	}
	s.Changing[s.LastSaid] = s.Made
}

// changes reports whether a tool may change something in the project.
func changes(tool string) bool { return tool == "edit" || tool == "exec" || tool == "set_env" }

// BrokenOff reports whether a call that may change something has begun and has no result:
// unless it is still running, its progress is unknown. A call that only asked has done
// nothing.
func (s *State) BrokenOff(id string) bool {
	_, done := s.Results[id]
	asks := s.Asked[id] != nil && !s.Allowed[id]
	if done || !s.Begun[id] || asks || len(s.Messages) == 0 {
		return false
	}
	for _, b := range s.Messages[len(s.Messages)-1].Blocks {
		if b.ID == id {
			return changes(b.Name)
		}
	}
	return false
}
