package tools

import (
	"context"
	"encoding/json"
	"strings"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

const installMIME = contract.OwnMIME + "install+json"

type installArgs struct {
	Packages string  `json:"packages" default:"" max:"20000" doc:"Such as: pandas>=2,<3 rich[jupyter]"`
	Path     string  `json:"requirements_path" default:"" max:"4096" doc:"A requirements file on the VM."`
	Upgrade  bool    `json:"upgrade" default:"false" doc:"Also replace installed releases by newer ones."`
	Timeout  float64 `json:"timeout_seconds" default:"600" min:"1" max:"86400" doc:"Deadline."`
	target
}

// Installed is the answer of install_packages.
type Installed struct {
	*Run
	Installed     []InstalledChange `json:"installed,omitzero"`      // the distributions that changed
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
	Installed     []InstalledChange `json:"installed"`
	RestartNeeded []string          `json:"restart_needed"`
	Kind, Hint    string            // of a failure
}

func installPackages() tool {
	return define(spec{
		name: "install_packages", title: "Install Python packages",
		summary:     "installs Python packages on the VM with uv or pip and says which imported ones need a restart",
		description: "Use it to install Python packages for the kernel. It answers as run_code_long does. restart_needed names changed packages that are imported already; restart_kernel loads them.",
		destructive: true, openWorld: true,
	}, func(ctx context.Context, c *call, args installArgs) (*Installed, *Problem) {
		var w installWatch
		// Lists of executions show it: the relay's own as a source, and the VM's as the first line.
		title := plain.Line("install_packages " + strings.Join(strings.Fields(args.Packages+" "+args.Path), " "))
		run, p := c.submitWatched(ctx, contract.Submit{
			Code: "# " + title + "\n" + kernelpy.Call{
				Function: "install.run.install", Arguments: []any{args.Packages, args.Path, args.Upgrade},
				MIME: installMIME, Delivery: kernelpy.Display,
			}.Code(true), // by the time it runs, nobody may be there to send the package
			Source: title, SourceName: "install_packages",
			Unstored: true, TimeoutSeconds: args.Timeout,
		}, w.see)
		if run == nil {
			return nil, p
		}
		return w.answer(run, p)
	})
}

// installWatch keeps the last report of an installation.
type installWatch struct{ report *installReport }

func (w *installWatch) see(e contract.Event) {
	text, ok := e.Data[installMIME]
	if !ok || e.Type != contract.EventDisplayData || client.CheckItems(text, map[string]int{"": maxReportItems}) != nil {
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
	got.Installed, got.RestartNeeded = firsts(r.Installed), firsts(r.RestartNeeded)
	if p == nil || r.Kind == "" || p.Code != string(contract.StatusFailed) {
		return got, p
	}
	p = p.copy()
	p.Hint, p.Traceback = brief(r.Hint), "" // the message has the installer's lines
	if r.Kind == codeBadRequest {
		p.Code = codeBadRequest
	}
	return got, p
}
