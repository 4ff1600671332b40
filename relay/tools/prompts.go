package tools

import (
	"slices"
	"sync"
)

// maxShownPrompts bounds the prompts that a relay remembers. Beyond it the oldest is forgotten, and its
// answer is sent to whatever prompt the run waits at.
const maxShownPrompts = 1000

// shownPrompts remembers which prompt of a run an answer showed last, so that provide_input answers
// that one and no other: meanwhile somebody else may have answered it, or an answer of
// provide_input may have been lost.
type shownPrompts struct {
	mu   sync.Mutex
	list []shownPrompt // oldest first
}

type shownPrompt struct {
	execution string
	offset    int64 // of the prompt's event
}

func (s *shownPrompts) put(execution string, offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.DeleteFunc(s.list, func(p shownPrompt) bool { return p.execution == execution })
	s.list = append(s.list, shownPrompt{execution, offset})
	s.list = slices.Delete(s.list, 0, max(0, len(s.list)-maxShownPrompts))
}

// of returns the offset of the prompt that was shown; nil for none.
func (s *shownPrompts) of(execution string) *int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.list {
		if p.execution == execution {
			return &p.offset
		}
	}
	return nil
}
