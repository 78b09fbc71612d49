document.querySelectorAll("button.copy").forEach(function (button) {
  button.hidden = false;
  button.addEventListener("click", function () {
    var text = document.getElementById(button.dataset.of);
    var done = function () {
      button.textContent = "Copied";
      setTimeout(function () { button.textContent = "Copy"; }, 2000);
    };
    var select = function () {
      var range = document.createRange();
      range.selectNodeContents(text);
      var selection = window.getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      if (document.execCommand("copy")) { done(); } else { button.textContent = "Press Ctrl-C"; }
    };
    if (navigator.clipboard) { navigator.clipboard.writeText(text.textContent).then(done, select); } else { select(); }
  });
});
