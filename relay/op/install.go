package op

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"colabrelay/relay/client"
	"colabrelay/relay/kernelcall"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

const installMIME = contract.OwnMIME + "install+json"

type installArgs struct {
	Packages string  `json:"packages" default:"" max:"20000" list:"true" doc:"Such as: pandas>=2,<3 rich[jupyter]; a list also works." arg:"[PACKAGE...]"`
	Path     string  `json:"requirements_path" default:"" max:"4096" doc:"A requirements file on the VM." flag:"requirements,r" usage:"also install what this 'FILE' on the VM lists"`
	Upgrade  bool    `json:"upgrade" default:"false" doc:"Also replace installed releases by newer ones." flag:"upgrade,U" usage:"also replace installed releases by newer ones"`
	Timeout  float64 `json:"timeout_seconds" default:"600" min:"1" max:"86400" doc:"Deadline." flag:"timeout" usage:"the deadline in 'SECONDS'"`
	target
}

// Installed is the answer of install_packages, and of get_execution, which may read the end of an
// installation.
type Installed struct {
	*Run
	InstalledChanges

	reported bool
}

// InstalledChanges are the distributions of an installation.
type InstalledChanges struct {
	Installed     []InstalledChange `json:"installed,omitzero"`      // those that changed
	Unchanged     []InstalledChange `json:"unchanged,omitzero"`      // those that were asked for and are as they were
	RestartNeeded []string          `json:"restart_needed,omitzero"` // those that are imported already: the kernel goes on with their old code
}

// InstalledChange is a distribution that changed. Old or New is empty for none.
type InstalledChange struct {
	Name string `json:"name"`
	Old  string `json:"old"`
	New  string `json:"new"`
}

// installReport is what install/run.py displays.
type installReport struct {
	InstalledChanges
	Kind, Hint string // of a failure
}

// joined returns a list of strings as one string, each on a line of its own, and anything else
// as it is. Models send a list, or a string that contains one.
func joined(raw json.RawMessage) json.RawMessage {
	text := []byte(raw)
	if inner := ""; json.Unmarshal(raw, &inner) == nil {
		text = []byte(inner)
	}
	var items []string
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) || json.Unmarshal(text, &items) != nil {
		return raw
	}
	return encode(strings.Join(items, "\n"))
}

func installPackages() Operation {
	return operation(spec{
		title:       "Install Python packages",
		description: "Installs Python packages for the kernel. It answers as run_code_long does, with what changed and what restart_kernel must load anew.",
		Command: Command{Group: "run",
			Short:    "Install Python packages on the VM",
			Long:     "Install Python packages for the VM's kernel with uv or pip, and say what changed and which imported packages need a restart of the kernel.",
			Examples: "  colab-relay packages 'pandas>=2,<3' rich\n  colab-relay packages -r requirements.txt --upgrade"},
	}, func(ctx context.Context, c *call, args installArgs) (*Installed, error) {
		if raw := contract.UnescapeName(args.Path); utf8.ValidString(raw) { // lists show paths escaped
			args.Path = raw
		}
		if strings.TrimSpace(args.Packages+args.Path) == "" {
			return nil, &ArgumentError{"packages", "PACKAGE", errors.New("name packages, such as pandas>=2,<3 rich[jupyter], or a file of requirements")}
		}
		f := kernelpy.Call{Function: "install.run.install", Arguments: []any{args.Packages, args.Path, args.Upgrade}, MIME: installMIME, Delivery: kernelpy.Display}
		if c.person != nil {
			return c.installFor(ctx, f, inSeconds(args.Timeout))
		}
		var w installWatch
		// Lists of executions show it: the relay's own as a source, and the VM's as the first line.
		title := plain.Line("install_packages " + strings.Join(strings.Fields(args.Packages+" "+args.Path), " "))
		run, p := c.submitWatched(ctx, contract.Submit{
			Code:   "# " + title + "\n" + f.Code(true), // by the time it runs, nobody may be there to send the package
			Source: title, SourceName: "install_packages",
			Unstored: true, TimeoutSeconds: args.Timeout,
		}, w.see)
		if run == nil {
			return nil, p
		}
		got, p := w.answer(run, p)
		return got, p.orNil()
	})
}

// installFor installs packages for a person, who waits for the end.
func (c *call) installFor(ctx context.Context, f kernelpy.Call, limit time.Duration) (*Installed, error) {
	c.step("installing packages")
	text, err := c.ask(ctx, f, limit)
	if ended, ok := errors.AsType[*kernelcall.EndedError](err); ok && ended.Last.Error != nil {
		return nil, errors.New(ended.Last.Error.EValue) // which has the installer's lines
	}
	if err != nil {
		return nil, err
	}
	w := installWatch{}
	w.see(contract.Event{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{installMIME: text}})
	if w.report == nil {
		return nil, kernelcall.ErrNoReport
	}
	got, _ := w.answer(nil, nil)
	return got, nil
}

// installWatch keeps the last report of an installation.
type installWatch struct{ report *installReport }

func (w *installWatch) see(e contract.Event) {
	text, ok := e.Data[installMIME]
	if !ok || e.Type != contract.EventDisplayData || len(text) > client.MaxInline {
		return
	}
	var r installReport
	if json.Unmarshal(text, &r) == nil {
		w.report = &r
	}
}

func (w *installWatch) answer(run *Run, p *Problem) (*Installed, *Problem) {
	got := &Installed{Run: run}
	r := w.report
	if r == nil {
		return got, p
	}
	got.InstalledChanges, got.reported = InstalledChanges{firsts(r.Installed), firsts(r.Unchanged), firsts(r.RestartNeeded)}, true
	if p == nil || r.Kind == "" || p.Code != string(contract.StatusFailed) {
		return got, p
	}
	p = p.copy()
	p.Hint, p.Traceback = "Correct the call; "+saidByVM(r.Hint), "" // the message has the installer's lines
	if r.Kind == codeBadRequest {
		p.Code = codeBadRequest
	}
	return got, p
}

// text folds what the installer printed to what changed.
func (i *Installed) text(w *words) {
	if w.person == nil && (!i.reported || !contract.Status(i.Status).Finished()) {
		i.Run.text(w)
		return
	}
	if i.Run != nil {
		folded := *i.Run
		folded.Stdout, folded.Truncated, folded.NextCommand = "", false, ""
		folded.Outputs = slices.DeleteFunc(slices.Clone(i.Outputs), func(o render.Output) bool { return slices.Contains(o.MIMETypes, installMIME) })
		folded.text(w)
	}
	fmt.Fprintf(w, "%s\n", i.changes())
	if len(i.RestartNeeded) > 0 {
		fmt.Fprintf(w, "Already imported, so the old code goes on running until the kernel restarts: %s\nNext step: %s loads the new releases; variables are gone then.\n", someOf(i.RestartNeeded, shownPart), w.either("restart_kernel()", "`colab-relay restart`"))
	}
	if i.Run != nil {
		fmt.Fprintf(w, "What the installer printed is left out here%s; get_execution(execution_id=%q) reads it.\n", i.savedStreams(), i.ExecutionID)
	}
}

// changes says in a sentence what changed.
func (i *Installed) changes() string {
	var installed, removed []InstalledChange
	for _, c := range i.Installed {
		if c.New == "" {
			removed = append(removed, c)
		} else {
			installed = append(installed, c)
		}
	}
	parts := []string{"Installed: nothing"}
	if len(installed) > 0 {
		parts[0] = "Installed: " + someOf(installed, func(c InstalledChange) string {
			if c.Old == "" {
				return shownPart(c.Name) + " " + shownPart(c.New)
			}
			return fmt.Sprintf("%s %s (was %s)", shownPart(c.Name), shownPart(c.New), shownPart(c.Old))
		})
	}
	if len(removed) > 0 {
		parts = append(parts, "removed: "+someOf(removed, func(c InstalledChange) string { return shownPart(c.Name) + " " + shownPart(c.Old) }))
	}
	if len(i.Unchanged) > 0 {
		parts = append(parts, "unchanged: "+someOf(i.Unchanged, func(c InstalledChange) string { return shownPart(c.Name) + " " + shownPart(c.New) }))
	}
	return strings.Join(parts, "; ")
}

// shownPart is a name or a version from the VM.
func shownPart(s string) string { return inline(plain.Clip(s, 80)) }

// someOf lists the first 40 items.
func someOf[T any](items []T, show func(T) string) string {
	const most = 40
	var all []string
	for _, item := range items[:min(len(items), most)] {
		all = append(all, show(item))
	}
	if more := len(items) - most; more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, ", ")
}
