package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"colabrelay/shared/contract"
)

// state saves variables on the laptop and restores them.
type state struct {
	name  string
	value int
}

func newState(r *rand.Rand, name string) operation { return &state{name, r.IntN(1 << 30)} }

func (v *state) String() string { return "variables saved and restored" }

func (v *state) do(ctx context.Context, s *scene) error {
	for n := 0; ; n++ {
		kept, err := v.save(ctx, s, n)
		if err != nil {
			return err
		}
		if kept {
			break
		}
	}
	for n := 0; ; n++ {
		if _, err := s.untilDone(ctx, "restore_kernel_state", map[string]any{"name": v.name}, nil); err != nil {
			return err
		}
		id := fmt.Sprintf("%sb%d", v.name, n)
		x, err := s.once(ctx, id, fmt.Sprintf("print(globals().get('%s', 'gone'))", v.name), "")
		if err != nil {
			return err
		}
		if x.lossy && gapLine.MatchString(x.output) {
			continue // what it printed is gone
		}
		switch x.output {
		case fmt.Sprintf("%d\n", v.value):
			s.tally.add("states", 1)
			return nil
		case "gone\n", "":
			if !s.excuses.any(kernelEnds) && x.reported == contract.StatusSucceeded {
				return fmt.Errorf("%s was restored, and is gone", v.name)
			}
		default:
			return fmt.Errorf("%s was restored as %q, want %d", v.name, x.output, v.value)
		}
	}
}

// save sets the variable, saves it and deletes it. kept is false if the kernel ended between.
func (v *state) save(ctx context.Context, s *scene, n int) (kept bool, err error) {
	if _, err := s.once(ctx, fmt.Sprintf("%sa%d", v.name, n), fmt.Sprintf("%s = %d", v.name, v.value), ""); err != nil {
		return false, err
	}
	a, err := s.untilDone(ctx, "save_kernel_state", map[string]any{"name": v.name}, nil)
	if err != nil {
		return false, err
	}
	kept = strings.Contains(fmt.Sprint(a.Fields["variables"]), v.name)
	if !kept && !s.excuses.any(kernelEnds|networkFails|relayEnds) {
		return false, fmt.Errorf("the saved state lacks %s: %s", v.name, a.Text)
	}
	_, err = s.once(ctx, fmt.Sprintf("%sd%d", v.name, n), fmt.Sprintf("globals().pop('%s', None)", v.name), "")
	return kept, err
}

// once submits a run that must end well unless the step excuses it, and takes what it printed
// as its output.
func (s *scene) once(ctx context.Context, id, code, output string) (*submission, error) {
	x := s.submission(id, code, output)
	x.anything = true
	a, begun, err := s.begin(ctx, x)
	for err == nil && begun && !x.over() {
		a, begun, err = s.get(ctx, x, 0, 3)
	}
	if err == nil && begun && x.reported == contract.StatusSucceeded {
		x.output = a.String("stdout")
	}
	return x, err
}

// variable sets a variable and looks at it.
type variable struct {
	name  string
	value int
}

func newVariable(r *rand.Rand, name string) operation { return &variable{name, r.IntN(1 << 30)} }

func (v *variable) String() string { return "a variable that is inspected" }

func (v *variable) do(ctx context.Context, s *scene) error {
	x, err := s.once(ctx, v.name+"r", fmt.Sprintf("%s = %d", v.name, v.value), "")
	if err != nil || x.reported != contract.StatusSucceeded { // or it was never submitted
		return err
	}
	a, err := s.ask(ctx, "inspect_variable", map[string]any{"name": v.name}, accepted{string(contract.CodeNotFound): kernelEnds})
	if err != nil {
		return err
	}
	if preview := a.String("preview"); a.Error() == "" && preview != fmt.Sprint(v.value) {
		return fmt.Errorf("%s is shown as %q, want %d", v.name, preview, v.value)
	}
	_, err = s.ask(ctx, "list_colab_variables", nil, nil)
	return err
}
