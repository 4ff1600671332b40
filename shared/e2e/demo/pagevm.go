package main

import (
	"context"
	"os"
	"path/filepath"

	"colabrelay/shared/e2e/browser"
)

// pageStage is what the demo of Colab's page needs: the page with its VM, and the browser.
type pageStage struct {
	vm       string // folder with the VM's content, home and temporary files
	colab    *browser.Colab
	chromium *browser.Chromium
	tools    *browser.DevTools // once the relay started the browser
	tabs     []*browser.Tab    // all that the relay opened
}

// open starts all but the browser, which the relay starts.
func (p *pageStage) open(ctx context.Context) (err error) {
	if p.vm, err = os.MkdirTemp("", "vm-"); err != nil { // a short path: sockets allow 107 bytes
		return err
	}
	for _, name := range []string{"content", "home", "tmp"} {
		if err := os.Mkdir(filepath.Join(p.vm, name), 0o700); err != nil {
			return err
		}
	}
	p.colab, err = browser.New(ctx, filepath.Join(p.vm, "content"),
		"HOME="+filepath.Join(p.vm, "home"), "TMPDIR="+filepath.Join(p.vm, "tmp"))
	if err != nil {
		return err
	}
	p.chromium, err = browser.NewChromium(p.colab)
	return err
}

// tab waits for the next tab that the relay opens.
func (p *pageStage) tab(ctx context.Context) (tab *browser.Tab, err error) {
	if p.tools == nil {
		if p.tools, err = p.chromium.Attach(ctx); err != nil {
			return nil, err
		}
	}
	if tab, err = p.tools.Opened(ctx, "https://"+browser.Host+"/", p.tabs...); err == nil {
		p.tabs = append(p.tabs, tab)
	}
	return tab, err
}

// current is the tab that was opened last.
func (p *pageStage) current() *browser.Tab { return p.tabs[len(p.tabs)-1] }

// close ends what open started, and the executors on the VM.
func (p *pageStage) close() {
	if p.tools != nil {
		p.tools.Close()
	}
	if p.chromium != nil {
		_ = p.chromium.Close()
	}
	if p.colab != nil {
		p.colab.Close()
	}
	if p.vm != "" {
		os.RemoveAll(p.vm)
	}
}
