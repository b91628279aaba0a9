{
  const body = document.body, all = document.querySelectorAll('[data-of]');
  let kept = '';
  const show = name => {
    body.classList.toggle('picked', !!name);
    all.forEach(e => e.classList.toggle('on', e.dataset.of === name));
  };
  all.forEach(e => {
    e.addEventListener('mouseenter', () => show(e.dataset.of));
    e.addEventListener('mouseleave', () => show(kept));
  });
  document.querySelectorAll('nav button').forEach(e => e.addEventListener('click', () => {
    kept = kept === e.dataset.of ? '' : e.dataset.of;
    show(kept);
  }));
}
