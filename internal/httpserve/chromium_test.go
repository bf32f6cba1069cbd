//go:build linux

package httpserve

import (
	"fmt"
	"image"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// TestPageInBrowser opens the page with hostile names in a real browser. None of
// them may run; all must be shown; our own script must run under the policy of
// the page and keep it live; and nothing may scroll sideways on a phone.
func TestPageInBrowser(t *testing.T) {
	b := startBrowser(t)
	r := start(t, Options{Version: "9.9", More: func() []Row { return []Row{{"Data directory", hostile[1]}} }})
	r.holdHostile()
	for _, width := range []int{360, 390, 1280} {
		for _, scheme := range []string{"light", "dark"} {
			b.visit(r.base+"/", width, scheme)
			b.until("the page is live", `document.getElementById("live")?.dataset.state === "live"`)
			if owned := b.eval(`document.documentElement.getAttribute("data-owned")`); owned != nil {
				t.Fatalf("hostile name %v ran", owned)
			}
			text := b.eval(`document.body.innerText`).(string)
			for _, name := range hostile {
				if !strings.Contains(text, plain(name)) {
					t.Errorf("%d %s: the page does not show %s", width, scheme, name)
				}
			}
			if wide := b.eval(`document.documentElement.scrollWidth`); wide.(float64) > float64(width) {
				t.Errorf("%d %s: the page is %v wide and scrolls sideways", width, scheme, wide)
			}
			checkPicture(t, b.picture(fmt.Sprintf("hostile-%d-%s", width, scheme)), scheme)
		}
	}
	for _, c := range b.complaints() {
		t.Errorf("the browser complains: %s", c)
	}
}

// checkPicture fails for a blank page and for one in the wrong colours.
func checkPicture(t *testing.T, img image.Image, scheme string) {
	t.Helper()
	size := img.Bounds()
	corner, _, _, _ := img.At(1, 1).RGBA()
	if dark := corner < 0x8000; dark != (scheme == "dark") {
		t.Errorf("%s: the page's background is %#x", scheme, corner>>8)
	}
	inked := 0
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			v, _, _, _ := img.At(x, y).RGBA()
			if max(v, corner)-min(v, corner) > 0x6000 {
				inked++
			}
		}
	}
	if share := float64(inked) / float64(size.Dx()*size.Dy()); share < 0.005 || share > 0.5 {
		t.Errorf("%s: %.1f %% of the picture differs from its background", scheme, 100*share)
	}
}

// TestPageLive shows that a lock appears and goes without a reload, that what
// somebody marks is not taken away, and that the page says when the broker is gone.
func TestPageLive(t *testing.T) {
	b := startBrowser(t)
	r := start(t, Options{})
	b.visit(r.base+"/", 1280, "light")
	b.until("the page is live", `document.getElementById("live")?.dataset.state === "live"`)
	b.eval(`window.sameDocument = true`)
	a := r.post("/v1/lock", `{"key":"appears","ttl":60000,"label":"here"}`).want(t, 200, "acquired", true)
	b.until("the lock is shown", `document.getElementById("locks").innerText.includes("appears")`)
	b.eval(`document.getSelection().selectAllChildren(document.querySelector(".key th"))`)
	r.post("/v1/unlock", fmt.Sprintf(`{"key":"appears","lockUuid":%q}`, a.str("lockUuid"))).want(t, 200)
	b.until("the summary went on", `document.getElementById("summary").innerText.includes("Holds\n0")`)
	if b.eval(`document.getElementById("locks").innerText.includes("appears")`) != true {
		t.Error("what was marked was replaced")
	}
	b.eval(`document.getSelection().removeAllRanges()`)
	b.until("the lock is gone", `document.getElementById("locks").innerText.includes("Nothing is locked")`)
	if b.eval(`window.sameDocument`) != true {
		t.Error("the page was loaded again")
	}
	r.stop()
	b.until("the page says that it is not live", `document.getElementById("live").dataset.state === "cut"`)
}

// TestPageWithoutScript shows that the page refreshes by itself where scripts do
// not run.
func TestPageWithoutScript(t *testing.T) {
	b := startBrowser(t)
	r := start(t, Options{})
	b.call("Emulation.setScriptExecutionDisabled", object{"value": true}, nil)
	b.visit(r.base+"/", 390, "light")
	b.until("the page is shown", `document.body?.innerText.includes("refreshed every 5 seconds")`)
	s := r.open(lease.SessionOptions{Name: "worker"})
	s.Acquire(lease.Request{Keys: []string{"appears"}, TTL: time.Hour}, quietCaller{})
	b.until("the refreshed page shows the lock", `document.body?.innerText.includes("appears")`)
}
